"""Which products are computed in which type: a default, and exceptions by module path or source
line.

`precision="auto:..."` chooses one by the values of a call: `decide` in `_program/tolerance.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

LOW = {"bf16": np.dtype(jnp.bfloat16), "fp16": np.dtype(jnp.float16)}
FULL = "f32"
Tokens = tuple[str, ...]


def tokens(path: str) -> Tokens:
    """The parts of a path as people write it: `model.layers[0].weight` is model, layers, 0,
    weight.
    """
    return tuple(re.findall(r"[^.\[\]'\"\s]+", path))


def is_line(pattern: str) -> bool:
    """Whether an exception names a source line, `net.py:12`, instead of a path."""
    return re.fullmatch(r".+\.\w+:\d+", pattern) is not None


def within(pattern: Tokens, path: Tokens) -> bool:
    """Whether the parts of a pattern stand in a path, one behind the other."""
    return any(path[i : i + len(pattern)] == pattern for i in range(len(path) - len(pattern) + 1))


@dataclass(frozen=True)
class Policy:
    """The type of each product.

    Args:
        default: "bf16", "fp16" or "f32".
        exceptions: (path or line, type) pairs. The longest path that fits wins, a line wins over
            paths.
    """

    default: str
    exceptions: tuple[tuple[str, str], ...] = ()

    @property
    def types(self) -> list[str]:
        """The low types that occur in it."""
        return [
            name
            for name in dict.fromkeys((self.default, *(type_ for _, type_ in self.exceptions)))
            if name in LOW
        ]

    def of(self, paths: Sequence[Tokens], source: str) -> tuple[str, str | None]:
        """The type of a product, and the exception that says so.

        Args:
            paths: Of what feeds it.
            source: Its line, "net.py:12 (layer)".
        """
        line = source.partition(" ")[0]
        fitting = [
            (is_line(name), len(tokens(name)), i, name, type_)
            for i, (name, type_) in enumerate(self.exceptions)
            if (
                line == name if is_line(name) else any(within(tokens(name), path) for path in paths)
            )
        ]
        if not fitting:
            return self.default, None
        *_, name, type_ = max(fitting)
        return type_, name

    def unmatched(self, paths: Sequence[str]) -> tuple[str, list[str]] | None:
        """The first path among the exceptions that is that of no array, with paths that are near to
        it.
        """
        known = [tokens(path) for path in paths]
        for name, _ in self.exceptions:
            if is_line(name) or any(within(tokens(name), path) for path in known):
                continue
            spans = [
                path[i:j]
                for path in known
                for i in range(len(path))
                for j in range(i + 1, len(path) + 1)
            ]
            parts = list(dict.fromkeys(map(written, spans)))
            return name, difflib.get_close_matches(name, parts, n=3, cutoff=0.5) or list(
                dict.fromkeys(paths)
            )[:4]
        return None


def written(path: Tokens) -> str:
    """A path as people write it."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path).removeprefix(".")
