# MuJoCo's wheel has no stubs for its compiled modules; the checker treats them as untyped.
from typing import Any

def __getattr__(name: str) -> Any: ...
