"""One run of several processes: start and join them, put their data together, save and load."""

import typing as _typing

from ._lazy import names as _names

if _typing.TYPE_CHECKING:
    from ._processes.checkpoints import Checkpoints as Checkpoints
    from ._processes.distributed import Processes as Processes
    from ._processes.distributed import distributed as distributed
    from ._processes.from_processes import from_processes as from_processes
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "Checkpoints": "_processes.checkpoints",
            "Processes": "_processes.distributed",
            "distributed": "_processes.distributed",
            "from_processes": "_processes.from_processes",
        },
        private=False,
    )
