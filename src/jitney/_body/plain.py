"""A function as it was written: what a program is compared with by `verify`, and all that
`JITNEY_DISABLE` leaves.

What stays is meaning: `vmap`, since an annotation says what the body sees, `static`, and under
`verify` `precision="f64"`, since a plain run in float32 would be the worse one and may never end.
All else is left out, of the functions under `@optimize` that the body calls too. Those are traced
below the outer one, and JAX keeps their traces: so a plain run stands in a context that JAX's
caches are keyed by, each in one of its own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax

from .._jax.user_contexts import PLAIN
from .._signature.options import Options, policy_of, tolerance_of
from .._stages.derive import Derived

_jax: Any = jax
_JACOBIANS = ("jacobian", "value_and_jacobian", "hessian")


@dataclass(frozen=True)
class Change:
    """One thing that jitney does to a program.

    Args:
        option: Which, as the table of tolerances has it.
        axes: The named axes that it acts on.
    """

    option: str
    axes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.option} over {' and '.join(map(repr, self.axes))}" if self.axes else self.option
        )


class Stripped:
    """One plain run: what it does without, of programs below the outermost."""

    def __init__(self) -> None:
        self.changes: dict[Change, None] = {}

    def add(self, options: Options, fn: Any) -> None:
        # below an outer trace nothing is padded
        self.changes.update(dict.fromkeys(changes_of(replace(options, pad=()), fn)))


@contextmanager
def plainly() -> Generator[Stripped]:
    """The scope of one plain run."""
    stripped = Stripped()
    with PLAIN(stripped):
        yield stripped


def plain_run() -> Stripped | None:
    """The plain run that this is a part of."""
    return PLAIN.value


def without(options: Options) -> Options:
    """Options that change nothing of what is computed."""
    return replace(
        options,
        donate=(),
        pad=(),
        chunk=(),
        memory=None,
        remat=None,
        roll=None,
        precision=None,
        check=False,
        checks="now",
        compiler="default",
        debug_nans=False,
        shard=None,
        mesh=None,
        accumulate=False,
        verify=False,
    )


def plain_function(fn: Any) -> Any:
    """The function, or of a derivative JAX's own, dense, with nothing recomputed."""
    if not isinstance(fn, Derived):
        return fn
    return replace(
        fn, fn=plain_function(fn.fn), memory=None, remat=None, roll=None, summed=False, plain=True
    )


def changes_of(options: Options, fn: Any) -> tuple[Change, ...]:
    """What jitney may do to a program of a function, by its options."""
    changes: list[Change] = []
    derived = fn if isinstance(fn, Derived) else None
    if options.pad:
        changes.append(Change("pad", tuple(name for name, _ in options.pad)))
    if options.chunk:
        changes.append(
            Change(
                "accumulate" if options.accumulate else "chunk",
                tuple(name for name, _ in options.chunk),
            )
        )
    elif options.memory is not None:
        changes.append(Change("memory"))
    if options.shard is not None:
        changes.append(Change("shard", tuple(name for name, _ in options.shard.axes)))
    if options.remat is not None or (
        derived is not None and (derived.remat or derived.memory is not None)
    ):
        changes.append(Change("remat"))
    if options.roll is not None:
        changes.append(Change("roll"))
    if derived is not None and derived.what in _JACOBIANS:
        changes.append(Change("jacobian"))
    if options.compiler == "fast":
        changes.append(Change("compiler"))
    if options.precision is not None and options.precision != "f64":
        changes += [Change(f"precision={name}") for name in _products(options)]
    return tuple(changes)


def _products(options: Options) -> tuple[str, ...]:
    policy = policy_of(options.precision)
    if policy is not None:
        return tuple(policy.types)
    return ("bf16",) if tolerance_of(options.precision) is not None else (str(options.precision),)
