"""Program whose gradient is wanted, with its options and their measurements by the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from .._jax.compiler import FAST
from .._jax.equinox_checks import own_jit
from .._jax.memory import counted_bytes
from .._jax.trees import issubdtype
from .chain import Chain
from .flat import FlatProgram, flattened
from .flops import flops, of_equation
from .layers import Stack, stacks_of
from .option import EVERYTHING, Option, Saved, program_of

# Numbers of layers for which there is an option, at most.
_STEPS = 12
# Fewest iterations of a loop.
_LOOP = 2


@dataclass(frozen=True)
class MeasuredOption:
    """Measured option.

    Args:
        option: Residuals that are saved.
        bytes: Temporaries and arguments of the gradient, as the compiler counts them.
        flops: Operations of the gradient in addition to those when everything is saved.
    """

    option: Option
    bytes: int
    flops: int


class Problem:
    """Program whose gradient is wanted.

    Args:
        traced: The program: arrays in, arrays out.
        wrt: Arguments to differentiate with respect to.
        lies: Sharding of each argument on a mesh of devices; memory is that of one device.
    """

    def __init__(
        self, traced: Any, wrt: Sequence[int] | None = None, lies: Sequence[Any] | None = None
    ):
        self.flat: FlatProgram = flattened(traced)
        self.constants: list[Any] = list(getattr(traced, "consts", ()))
        count = len(self.constants)
        arguments = self.flat.takes[count:]
        self.shardings: dict[int, Any] = dict(zip(arguments, lies or (), strict=False))
        chosen = range(len(arguments)) if wrt is None else wrt
        # Only inexact arguments and results take part in the gradient. Constants come first in
        # `takes`.
        self.wrt = [
            count + i for i in chosen if issubdtype(self.flat.avals[arguments[i]].dtype, np.inexact)
        ]
        kinds = [
            getattr(self.flat.avals[ref] if isinstance(ref, int) else ref.value, "dtype", None)
            for ref in self.flat.gives
        ]
        self.results = [
            i
            for i, dtype in enumerate(kinds)
            if dtype is not None and issubdtype(dtype, np.inexact)
        ]
        self.stacks: tuple[Stack, ...] = stacks_of(self.flat)
        self.points: dict[Option, MeasuredOption] = {}
        self._everything = 0

    @property
    def has_gradient(self) -> bool:
        return bool(self.wrt) and any(isinstance(self.flat.gives[i], int) for i in self.results)

    def fn(self, option: Option) -> Callable[[Sequence[Any]], list[Any]]:
        made = program_of(self.flat, self.stacks, option)
        return lambda arrays: made([*self.constants, *arrays])

    def measure(self, option: Option) -> MeasuredOption:
        """Measure an option: its bytes by the compiler, its operations by the jaxpr."""
        if option not in self.points:
            run = program_of(self.flat, self.stacks, option)

            def gradient(values: Any, cotangents: Any) -> Any:
                def of(chosen: Any) -> Any:
                    given = list(values)
                    for i, value in zip(self.wrt, chosen, strict=True):
                        given[i] = value
                    out = run(given)
                    return [out[i] for i in self.results]

                out, pull = jax.vjp(of, [values[i] for i in self.wrt])
                return out, pull(cotangents)[0]

            # Abstract arrays only: the gradient is compiled and never run.
            traced = own_jit()(gradient).trace(*self._avals())

            work = flops(traced.jaxpr)
            # Recomputation is counted from the operations of the gradient that saves everything.
            if option == EVERYTHING:
                self._everything = work
            else:
                self.measure(EVERYTHING)
            self.points[option] = MeasuredOption(
                option,
                counted_bytes(traced.lower().compile(dict(FAST))),
                max(0, work - self._everything),
            )
        return self.points[option]

    def _avals(self) -> Any:
        values = [self._abstract(n) for n in self.flat.takes]
        given = [self.flat.gives[i] for i in self.results]
        return values, [
            self._abstract(ref) if isinstance(ref, int) else _form(ref.value) for ref in given
        ]

    def _abstract(self, n: int) -> Any:
        aval = self.flat.avals[n]
        return jax.ShapeDtypeStruct(
            aval.shape, aval.dtype, weak_type=aval.weak_type, sharding=self.shardings.get(n)
        )

    @property
    def least(self) -> int:
        """Bytes of the smallest measured option."""
        return min(point.bytes for point in self.points.values())

    @property
    def forward(self) -> int:
        """Operations of the program itself."""
        return sum(of_equation(step.eqn) for step in self.flat.steps)

    def options(self) -> list[Option]:
        """List all options.

        No option saves nothing of the whole program: that would recompute everything and hold it
        all at once.
        """
        saved: list[Saved] = ["dots", "nothing"]
        if unsupported() is None:
            saved.insert(1, "offloaded")
        # `jax.checkpoint` does not take effects.
        pure = not any(step.eqn.effects for step in self.flat.steps)
        options = [
            EVERYTHING,
            *(Option(policy, whole=True) for policy in saved if policy != "nothing" and pure),
        ]

        count = sum(stack.count for stack in self.stacks)
        rolls = any(
            stack.identical and isinstance(Chain.of(self.flat, stack, stack.count), Chain)
            for stack in self.stacks
        )

        for rolled in (False, True) if rolls else (False,):
            for group in groups_of(count):
                least = _LOOP * group if rolled else group
                for policy in saved:
                    options += [
                        Option(policy, layers, group, rolled)
                        for layers in numbers_of(count, group)
                        if layers >= least
                    ]
        return options


def _form(value: Any) -> Any:
    return jax.ShapeDtypeStruct(np.shape(value), value.dtype)


def groups_of(count: int) -> list[int]:
    """Numbers of layers that are recomputed together: 1, 2, a divisor near the square root, and
    twice that.

    Near the square root, the memory of the inputs of all groups balances that of one recomputed
    group.
    """
    root = min(
        (d for d in range(1, count + 1) if count % d == 0),
        key=lambda d: abs(d - count**0.5),
        default=1,
    )
    return sorted({g for g in (1, 2, root, 2 * root) if g < count})


def numbers_of(count: int, group: int) -> list[int]:
    """Numbers of layers that are recomputed, in steps of a group."""
    step = group * max(1, -(-count // (group * _STEPS)))
    return sorted({*range(step, count + 1, step), count})


def unsupported() -> str | None:
    """Reason why residuals cannot be offloaded; None if they can."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return "the memory of a CPU is that of the host"
    kinds = {memory.kind for memory in device.addressable_memories()}
    return (
        None
        if "pinned_host" in kinds
        else (
            f"{device.device_kind} has no memory space pinned_host, only {', '.join(sorted(kinds))}"
        )
    )
