"""Settings of `@lazy_derivatives`, which a program hands to each of its derivatives."""

from __future__ import annotations

from dataclasses import dataclass

from .._sparsity import Mode


@dataclass(frozen=True)
class Defaults:
    """Settings of `@lazy_derivatives` for all derivatives of a function."""

    wrt: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    single: bool = False
    mode: Mode = "auto"
    sparse: bool = False
