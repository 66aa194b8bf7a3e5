"""A process with a worker, which is killed: it imports this module, and nothing that takes long."""

from robolearn.inference.local import WorkerInference
from tests.mocks import BuildFaulty, request_at
from tests.waiting import pass_time


def run_until_killed(pipe):
    worker = WorkerInference(BuildFaulty("stall"), timeout_s=60)
    worker.submit(0, request_at(0))
    pipe.send_bytes(str(worker.pid).encode())
    pass_time(60, "until it is killed")
