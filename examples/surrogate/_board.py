"""A log that TensorBoard reads, by `tensorboardX`, an extra of this example:
`pip install 'jitney[examples,board]'`. It writes in a thread of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType


class Board:
    """Numbers by their step, in an event file of a folder; used as a context, which closes it.

    Args:
        folder: Where; a run that goes on writes one more file.
        after: The last step that is kept of earlier files, where a run goes on from a checkpoint.
    """

    def __init__(self, folder: Path, after: int | None = None):
        from tensorboardX import SummaryWriter  # an extra

        purge = None if after is None else after + 1
        # files of one second would have one name
        name = f".{after or 0}"
        self._writer = SummaryWriter(str(folder), purge_step=purge, filename_suffix=name)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Numbers of one step."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, float(value), step)

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
