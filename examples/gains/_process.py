"""Run one side in a process of its own, where peaks of memory and first calls are its own."""

import json
import os
import subprocess
import sys
from typing import Any


def run(module: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """What `python -m examples.gains.MODULE ...` prints last, as data.

    Raises:
        RuntimeError: It failed; the message has what it said.
    """
    command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
    # Each process has the cache that it is given, and no other.
    own = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    env = own | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"`{' '.join(command)}` ended with exit code {done.returncode}:\n{done.stderr}"
        )
    return json.loads(done.stdout.splitlines()[-1])
