"""One mistake, and how it is made in a copy of the project and undone again."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Python takes bytecode for its source by time and size, so no two states of a file share a time.
_SECONDS = itertools.count(1)


@dataclass(frozen=True)
class Mutation:
    """A plausible mistake of an engineer.

    Args:
        name: In a few words, for `-k` and reports.
        file: Where it is made, from the root of the project.
        old: A snippet that stands there once.
        new: The snippet that replaces it.
        tests: Files or tests of the core that should fail: the cheapest that are about it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @contextmanager
    def made_in(self, root: Path) -> Generator[None]:
        """Make the mistake in a copy of the project, for as long as this lasts."""
        path = root / self.file
        before = path.read_text()
        if before.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} does not hold this once: {self.old!r}")

        modified = path.stat().st_mtime
        try:
            _replace(path, before.replace(self.old, self.new), modified + next(_SECONDS))
            yield
        finally:
            _replace(path, before, modified + next(_SECONDS))


def _replace(path: Path, text: str, modified: float) -> None:
    """Write a file as a whole, with a time of its own."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(text)
    os.utime(unfinished, (modified, modified))
    unfinished.replace(path)
