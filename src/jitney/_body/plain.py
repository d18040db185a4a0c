"""Functions as they were written: the reference of `verify`, and all that `JITNEY_DISABLE` leaves.

Options that belong to the meaning of a function stay: `vmap`, since an annotation says what the
body sees, `static`, and under `verify` `precision="f64"`, since a plain run in float32 would be the
less accurate one and may never end. Every other option is left out, also of the functions under
`@optimize` that the body calls. Those are traced below the outer one, and JAX caches their traces:
so each plain run stands in a context of its own, by which JAX's caches are keyed.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from .._jax.user_contexts import PLAIN
from .._signature.options import Options
from .._stages.derivatives.derive import JACOBIANS, Derived


@dataclass(frozen=True)
class ProgramChange:
    """A change that jitney makes to a program.

    Args:
        option: The option, as the table of tolerances has it.
        axes: The named axes that it acts on.
    """

    option: str
    axes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.option} over {' and '.join(map(repr, self.axes))}" if self.axes else self.option
        )


class PlainRun:
    """Options that one plain run leaves out of the programs below the outermost."""

    def __init__(self) -> None:
        self.changes: dict[ProgramChange, None] = {}

    def add(self, options: Options, fn: object) -> None:
        # Below an outer trace nothing is padded.
        self.changes.update(dict.fromkeys(changes_of(options.without("pad"), fn)))


@contextmanager
def plainly() -> Generator[PlainRun]:
    """Scope of one plain run."""
    stripped = PlainRun()
    with PLAIN(stripped):
        yield stripped


def plain_run() -> PlainRun | None:
    """Return the plain run that is under way here, if any."""
    return PLAIN.value


def plain_function(fn: object) -> Any:
    """Return the function; for a derivative, JAX's own: dense, with nothing rematerialised."""
    if not isinstance(fn, Derived):
        return fn
    return replace(
        fn,
        fn=plain_function(fn.fn),
        memory=None,
        remat=None,
        roll=None,
        summed=False,
        plain=True,
    )


def changes_of(options: Options, fn: object) -> tuple[ProgramChange, ...]:
    """Return the changes that jitney may make to a program of a function: by its options, and by
    what a derivative has of its own.
    """
    changes = [ProgramChange(name, axes) for name, axes in options.changes]
    if isinstance(fn, Derived):
        if fn.remat or fn.memory is not None:
            changes.append(ProgramChange("remat"))
        if fn.what in JACOBIANS:
            changes.append(ProgramChange("jacobian"))
    return tuple(dict.fromkeys(changes))
