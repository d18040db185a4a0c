"""Program whose gradient is wanted, with its options and their measurements by the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from .._jax.equinox_checks import own_jit
from .._jax.programs.ssa import FlatProgram, flatten_program, is_pure
from .._jax.trees import issubdtype
from .._jax.typed import Array
from .._jax.xla.compiler import FAST
from .._jax.xla.memory import counted_bytes
from .chain import Arrays, Chain
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
        self,
        traced: object,
        wrt: Sequence[int] | None = None,
        lies: Sequence[jax.sharding.Sharding | None] | None = None,
    ):
        self.flat: FlatProgram = flatten_program(traced)
        self.constants: list[Array] = list(getattr(traced, "consts", ()))
        count = len(self.constants)
        arguments = self.flat.takes[count:]
        self.shardings: dict[int, jax.sharding.Sharding | None] = dict(
            zip(arguments, lies or (), strict=False)
        )
        chosen = range(len(arguments)) if wrt is None else wrt
        # Only inexact arguments and results take part in the gradient. Constants come first in
        # `takes`.
        self.wrt: list[int] = []
        for i in chosen:
            dtype = self.flat.avals[arguments[i]].dtype
            if issubdtype(dtype, np.inexact):
                self.wrt.append(count + i)
        self.results: list[int] = []
        for i, ref in enumerate(self.flat.gives):
            result = self.flat.avals[ref] if isinstance(ref, int) else ref.value
            dtype = getattr(result, "dtype", None)
            if dtype is not None and issubdtype(dtype, np.inexact):
                self.results.append(i)
        self.stacks: tuple[Stack, ...] = stacks_of(self.flat)
        self.points: dict[Option, MeasuredOption] = {}
        self._everything = 0

    @property
    def has_gradient(self) -> bool:
        return bool(self.wrt) and any(isinstance(self.flat.gives[i], int) for i in self.results)

    def fn(self, option: Option) -> Callable[[Arrays], list[Array]]:
        program = program_of(self.flat, self.stacks, option)
        return lambda arrays: program([*self.constants, *arrays])

    def measure(self, option: Option) -> MeasuredOption:
        """Measure an option: its bytes by the compiler, its operations by the jaxpr."""
        if option in self.points:
            return self.points[option]
        run = program_of(self.flat, self.stacks, option)

        def gradient(values: Arrays, cotangents: Arrays) -> object:
            def of(chosen: Arrays) -> Arrays:
                inputs = list(values)
                for i, value in zip(self.wrt, chosen, strict=True):
                    inputs[i] = value
                out = run(inputs)
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
        compiled = traced.lower().compile(dict(FAST))
        point = MeasuredOption(
            option,
            counted_bytes(compiled),
            max(0, work - self._everything),
        )
        self.points[option] = point
        return point

    def _avals(self) -> tuple[list[jax.ShapeDtypeStruct], list[jax.ShapeDtypeStruct]]:
        """Abstract arguments of the gradient: values of the program, and cotangents."""
        values = [self._abstract(n) for n in self.flat.takes]
        cotangents: list[jax.ShapeDtypeStruct] = []
        for i in self.results:
            ref = self.flat.gives[i]
            aval = self._abstract(ref) if isinstance(ref, int) else _form(ref.value)
            cotangents.append(aval)
        return values, cotangents

    def _abstract(self, n: int) -> jax.ShapeDtypeStruct:
        aval = self.flat.avals[n]
        return jax.ShapeDtypeStruct(
            aval.shape,
            aval.dtype,
            weak_type=aval.weak_type,
            sharding=self.shardings.get(n),
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
        policies: list[Saved] = ["dots", "nothing"]
        if offload_obstacle() is None:
            policies.insert(1, "offloaded")
        options = [EVERYTHING]
        # `jax.checkpoint` does not take effects.
        if is_pure(self.flat.steps):
            options += [Option(policy, whole=True) for policy in policies if policy != "nothing"]

        count = sum(stack.count for stack in self.stacks)
        for rolled in (False, True) if self._rolls() else (False,):
            for group in groups_of(count):
                least = _LOOP * group if rolled else group
                numbers = [layers for layers in numbers_of(count, group) if layers >= least]
                for policy in policies:
                    # XLA for GPUs fails on a loop whose residuals are moved to the host (jax
                    # 0.11.2, an internal error about the layout of its state).
                    if not (rolled and policy == "offloaded"):
                        options += [Option(policy, layers, group, rolled) for layers in numbers]
        return options

    def _rolls(self) -> bool:
        """Return whether layers of the program can become a loop."""
        for stack in self.stacks:
            if stack.identical and isinstance(Chain.of(self.flat, stack, stack.count), Chain):
                return True
        return False


def _form(value: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(np.shape(value), value.dtype)


def groups_of(count: int) -> list[int]:
    """Numbers of layers that are recomputed together: 1, 2, a divisor near the square root, and
    twice that.

    Near the square root, the memory of the inputs of all groups balances that of one recomputed
    group.
    """
    divisors = [d for d in range(1, count + 1) if count % d == 0]
    root = min(divisors, key=lambda d: abs(d - count**0.5), default=1)
    sizes = {1, 2, root, 2 * root}
    return sorted(size for size in sizes if size < count)


def numbers_of(count: int, group: int) -> list[int]:
    """Numbers of layers that are recomputed, in steps of a group."""
    groups = -(-count // (group * _STEPS))
    step = group * max(1, groups)
    numbers = range(step, count + 1, step)
    return sorted({*numbers, count})


def offload_obstacle() -> str | None:
    """Reason why residuals cannot be offloaded; None if they can."""
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return "the memory of a CPU is that of the host"
    kinds = {memory.kind for memory in device.addressable_memories()}
    if "pinned_host" in kinds:
        return None
    present = ", ".join(sorted(kinds))
    return f"{device.device_kind} has no memory space pinned_host, only {present}"
