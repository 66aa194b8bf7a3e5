"""Runs policies: in process, in a worker, remote, as an ONNX graph."""
