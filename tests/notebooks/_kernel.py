"""A kernel of Jupyter, as a notebook starts one, and what its cells display."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupyter_client

SECONDS = 120
"""Until a cell that hangs fails."""


@dataclass
class Cell:
    """What a cell left below itself."""

    number: int = 0
    printed: str = ""
    warned: str = ""
    displays: list[dict[str, str]] = field(default_factory=list)
    """Each as it is in the end: by the type of its content."""
    result: dict[str, str] | None = None
    error: str = ""
    """The traceback, without the colours that IPython gives it."""


class Kernel:
    """A kernel that runs."""

    def __init__(self, client: Any):
        self._client = client

    def run(self, code: str) -> Cell:
        """Execute a cell, as a notebook does."""
        cell, by_id = Cell(), dict[str, int]()

        def take(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            shown_as = content.get("transient", {}).get("display_id")
            match kind:
                case "execute_input":
                    cell.number = content["execution_count"]
                case "stream" if content["name"] == "stdout":
                    cell.printed += content["text"]
                case "stream":
                    cell.warned += content["text"]
                case "display_data":
                    by_id[shown_as] = len(cell.displays)
                    cell.displays.append(content["data"])
                case "update_display_data":
                    cell.displays[by_id[shown_as]] = content["data"]
                case "execute_result":
                    assert cell.result is None
                    cell.result = content["data"]
                case "error":
                    cell.error = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(content["traceback"]))
                case _:
                    assert kind == "status", message

        self._client.execute_interactive(
            code, output_hook=take, timeout=SECONDS, allow_stdin=False, stop_on_error=False
        )
        return cell


@contextmanager
def kernel(folder: Path) -> Iterator[Kernel]:
    """Start one in a folder, without what the user has configured."""
    root = str(Path(__file__).parents[2])
    env = {
        **os.environ,
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTHONPATH": os.pathsep.join([root, str(Path(root) / "src")]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    manager = jupyter_client.KernelManager(kernel_name="python3")
    manager.start_kernel(env=env, cwd=str(folder))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        yield Kernel(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
