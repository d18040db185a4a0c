"""Policies of mixed precision: a default type of products, and exceptions by module path or source
line.

    Policy("bf16", (("head", "f32"), ("net.py:12", "f32")))

`precision="auto:..."` chooses a policy by the values of a call: `decide` in
`_program/tolerance.py`.
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
    """Split a path as people write it: `model.layers[0].weight` is model, layers, 0, weight."""
    return tuple(re.findall(r"[^.\[\]'\"\s]+", path))


def is_line(pattern: str) -> bool:
    """Return whether an exception names a source line, `net.py:12`, instead of a path."""
    return re.fullmatch(r".+\.\w+:\d+", pattern) is not None


def within(pattern: Tokens, path: Tokens) -> bool:
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
        return [
            name
            for name in dict.fromkeys((self.default, *(type_ for _, type_ in self.exceptions)))
            if name in LOW
        ]

    def of(self, paths: Sequence[Tokens], source: str) -> tuple[str, str | None]:
        """Type of a product, and the exception that decides it; None for the default.

        Args:
            paths: Paths that feed the product.
            source: Line of the product, "net.py:12 (layer)".
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
        # Ordered by: a line before a path, the longer path, the later exception.
        *_, name, type_ = max(fitting)
        return type_, name

    def unmatched(self, paths: Sequence[str]) -> tuple[str, list[str]] | None:
        """First path among the exceptions that no array has, with similar paths; None if all are
        matched.
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
            parts = list(dict.fromkeys(map(path_text, spans)))
            return name, difflib.get_close_matches(name, parts, n=3, cutoff=0.5) or list(
                dict.fromkeys(paths)
            )[:4]
        return None


def path_text(path: Tokens) -> str:
    """Path as people write it: the inverse of `tokens`."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path).removeprefix(".")
