"""Policies of mixed precision: a default type of products, and exceptions by module path or source
line.

    Policy("bf16", (("head", "f32"), ("net.py:12", "f32")))

`precision="auto:..."` chooses a policy by the values of a call: `decide` in
`_program/tolerance/decide.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

LOW = {"bf16": np.dtype(jnp.bfloat16), "fp16": np.dtype(jnp.float16)}
FULL = "f32"
Tokens = tuple[str, ...]


def tokens(path: str) -> Tokens:
    """Split a path as people write it: `model.layers[0].weight` is model, layers, 0, weight."""
    return tuple(re.findall(r"[^.\[\]'\"\s]+", path))


def is_line(pattern: str) -> bool:
    """Return whether an exception names a source line, `net.py:12`, instead of a path."""
    return re.fullmatch(r".+\.\w+:\d+", pattern) is not None


def occurs_in(pattern: Tokens, path: Tokens) -> bool:
    """Return whether the parts of a pattern occur in a path consecutively."""
    return any(path[i : i + len(pattern)] == pattern for i in range(len(path) - len(pattern) + 1))


@dataclass(frozen=True)
class Policy:
    """Type of each product.

    Args:
        default: "bf16", "fp16" or "f32".
        exceptions: (path or line, type) pairs. The longest path that fits wins; a line wins over
            paths.
    """

    default: str
    exceptions: tuple[tuple[str, str], ...] = ()

    @property
    def types(self) -> list[str]:
        """Low types that occur in the policy."""
        names = [self.default, *(type_ for _, type_ in self.exceptions)]
        return [name for name in dict.fromkeys(names) if name in LOW]

    def of(
        self,
        paths: Sequence[Tokens],
        source: str,
    ) -> tuple[str, str | None]:
        """Type of a product, and the exception that decides it; None for the default.

        Args:
            paths: Paths that feed the product.
            source: Line of the product, "net.py:12 (layer)".
        """
        line, _, _ = source.partition(" ")
        fitting: list[tuple[bool, int, int]] = []
        for i, (name, _) in enumerate(self.exceptions):
            fits = name == line if is_line(name) else _occurs(name, paths)
            if fits:
                # Ordered by: a line before a path, the longer path, the later exception.
                fitting.append((is_line(name), len(tokens(name)), i))
        if not fitting:
            return self.default, None
        _, _, last = max(fitting)
        name, type_ = self.exceptions[last]
        return type_, name

    def unmatched_path(self, paths: Sequence[str]) -> tuple[str, list[str]] | None:
        """First path among the exceptions that no array has, with similar paths; None if all are
        matched.
        """
        known = [tokens(path) for path in paths]
        for name, _ in self.exceptions:
            if is_line(name) or _occurs(name, known):
                continue
            parts = dict.fromkeys(path_text(span) for path in known for span in _spans(path))
            close = difflib.get_close_matches(name, list(parts), n=3, cutoff=0.5)
            return name, close or list(dict.fromkeys(paths))[:4]
        return None


def _occurs(name: str, paths: Sequence[Tokens]) -> bool:
    parts = tokens(name)
    return any(occurs_in(parts, path) for path in paths)


def _spans(path: Tokens) -> Iterator[Tokens]:
    """Consecutive parts of a path."""
    for first in range(len(path)):
        for end in range(first + 1, len(path) + 1):
            yield path[first:end]


def path_text(path: Tokens) -> str:
    """Path as people write it: the inverse of `tokens`."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path).removeprefix(".")
