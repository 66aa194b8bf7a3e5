"""Policies on another machine: one websocket, messages of ``robolearn/codec.py``, a token."""
