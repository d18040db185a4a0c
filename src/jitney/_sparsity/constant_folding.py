"""Constant folding: values of a program that do not depend on its arguments, as JAX computes them
on the CPU in their own dtypes.

Positions and masks are mostly computed from literals. The values that rules read are computed
together, by one compiled program, while the program that holds them is being traced.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property

import jax

from .._jax.programs.jaxprs import open_jaxpr, rebind
from .._jax.programs.primitives import CALLS, UNROUNDED
from .._jax.programs.ssa import Const, FlatProgram, Ref, Step, flatten_program, live_steps
from .._jax.trees import Tracer, canonicalize_dtype, extended, issubdtype
from .._jax.typed import DType, NumPyArray
from .typed_numpy import np

# Elements of a value that is folded, at most.
_LARGEST = 1 << 22
# Multiplications of a product that is folded, at most.
_MOST_WORK = 1 << 26
# Bytes of float32. Compilers compute narrower floats in wider ones, and may skip the rounding in
# between.
_SINGLE = 4

_EXACT = UNROUNDED | frozenset(
    ("copy_p", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "split", "stack", "unstack")
)
_WHOLE = (
    "and or xor not shift_left shift_right_logical shift_right_arithmetic population_count clz"
    " reduce_and reduce_or reduce_xor add add_any sub mul div rem square integer_pow pow reduce_sum"
    " reduce_prod cumsum cumprod dot_general convert_element_type"
)
_ROUNDED = "sqrt rsqrt cbrt exp exp2 expm1 log log1p sin cos tan tanh logistic reduce_precision"
_TAKEN = _EXACT | frozenset((*_WHOLE.split(), *_ROUNDED.split()))
_JUMPS = ("sign", "floor", "ceil", "round", "rem")


class FoldedValues:
    """Known values of a program.

    Some are exact: every compiler computes the same bits. Sums and products of floats are not,
    since a compiler may fuse them or skip a rounding. An integer or boolean that is computed from
    such a float (an index, a comparison) is a decision, and may differ from program to program. A
    decision counts as known only where the program that runs is given its value.

    Args:
        flat: The program.
        given: Values of its constants.
        decided: Whether decisions count as known.
    """

    def __init__(
        self,
        flat: FlatProgram,
        given: Mapping[int, object],
        *,
        decided: bool,
    ):
        self.flat = flat
        self.given = {number: value for number, value in given.items() if _is_value(value)}
        self.decisions: list[Step] = []
        self._exact: dict[int, bool] = dict.fromkeys(self.given, True)
        for step in flat.steps:
            if not self._follows(step):
                continue
            # The result of a decision counts as exact: it will be a constant of the program.
            decides = self._decides(step)
            if decides:
                self.decisions.append(step)
            if decided or not decides:
                exact = decides or self._keeps(step)
                self._exact.update(dict.fromkeys(step.makes, exact))

    def __contains__(self, number: int) -> bool:
        return number in self._exact

    def _follows(self, step: Step) -> bool:
        """Return whether the results of a step can be folded."""
        if step.name not in _TAKEN or not all(map(self._is_known, step.reads)):
            return False
        for number in step.makes:
            out = self.flat.avals[number]
            if not _is_number(out.dtype) or math.prod(out.shape) > _LARGEST:
                return False
        return _work(step) <= _MOST_WORK

    def _is_known(self, ref: Ref) -> bool:
        return _is_value(ref.value) if isinstance(ref, Const) else ref in self

    def _decides(self, step: Step) -> bool:
        """Return whether a step is discontinuous in floats that are not exact: it returns
        integers, booleans or whole parts.
        """
        floats = [ref for ref in step.reads if _is_float(self._dtype(ref))]
        if not floats:
            return False
        makes = [self.flat.avals[number].dtype for number in step.makes]
        if step.name == "convert_element_type" and issubdtype(makes[0], np.integer):
            # A float that does not fit into the integer type is converted as the compiler likes.
            return True
        if step.name != "rem" and all(map(self._is_exact, floats)):
            return False
        return step.name in _JUMPS or not all(map(_is_float, makes))

    def _keeps(self, step: Step) -> bool:
        """Return whether exact operands give exact results."""
        if not all(map(self._is_exact, step.reads)):
            return False
        if step.name in _EXACT:
            return True
        makes = [self.flat.avals[number].dtype for number in step.makes]
        floats = list(filter(_is_float, makes))
        if not floats:
            return True
        if step.name != "convert_element_type":
            return False
        # Widening is exact.
        least = max(_SINGLE, self._width(step))
        return all(dtype.itemsize >= least for dtype in floats)

    def _width(self, step: Step) -> int:
        """Bytes of the float that a step converts; 0 if it converts something else."""
        dtype = self._dtype(step.reads[0])
        return dtype.itemsize if _is_float(dtype) else 0

    def _is_exact(self, ref: Ref) -> bool:
        return isinstance(ref, Const) or self._exact[ref]

    def _dtype(self, ref: Ref) -> DType:
        if isinstance(ref, Const):
            return np.result_type(ref.value)
        return self.flat.avals[ref].dtype

    def values(self, asked: Collection[int]) -> Mapping[int, NumPyArray]:
        """Known values as NumPy arrays, in the dtypes of the program.

        Values that are requested together are compiled together.
        """
        rest = [number for number in dict.fromkeys(asked) if number not in self._values]
        if rest:
            # Transfer guards and NaN checks of the user are meant for the program, not for its
            # constants.
            with (
                jax.default_device(_cpu()),
                jax.transfer_guard("allow"),
                jax.debug_nans(False),  # noqa: FBT003
                jax.debug_infs(False),  # noqa: FBT003
            ):
                computed = self._compute_values(rest)
                self._values.update(zip(rest, computed, strict=True))
        return self._values

    @cached_property
    def _values(self) -> dict[int, NumPyArray]:
        return {number: np.asarray(value) for number, value in self.given.items()}

    def _compute_values(self, asked: Sequence[int]) -> list[NumPyArray]:
        steps, _ = live_steps(self.flat.steps, asked, self.given)
        reads = dict.fromkeys(ref for step in steps for ref in step.numbers)
        leaves = [number for number in reads if number in self.given]

        # Floats stay constants, as in the program itself, since XLA rounds constants and arguments
        # differently. Integers become arguments: where XLA folds the quotient of the least integer
        # by -1 it aborts the process (jax 0.10.2), and code compiled for arguments does not.
        arguments: list[int] = []
        floats: dict[int, NumPyArray] = {}
        for number in leaves:
            value = self._values[number]
            if _is_float(value.dtype):
                floats[number] = value
            else:
                arguments.append(number)

        def run(arrays: Sequence[jax.Array]) -> list[object]:
            env: dict[int, object] = dict(floats)
            env.update(zip(arguments, arrays, strict=True))
            for step in steps:
                operands: list[object] = []
                for ref in step.reads:
                    value = env[ref] if isinstance(ref, int) else constant(ref.value)
                    operands.append(value)
                env.update(zip(step.makes, rebind(step.eqn, operands), strict=True))
            return [env[number] for number in asked]

        arrays = [self._values[number] for number in arguments]
        # `lower` and `compile`, because a call would be traced if an outer trace is active.
        compiled = jax.jit(run).lower(arrays).compile()
        return [np.asarray(value) for value in compiled(arrays)]


def _cpu() -> object:
    """First CPU device; None, the default device, where JAX was started without CPUs."""
    with suppress(RuntimeError):
        return jax.devices("cpu")[0]
    return None


class Programs:
    """Memo of flattened programs: the body of a loop is followed until a fixpoint."""

    def __init__(self) -> None:
        # Number of equations so far that read or write varying values at unknown positions.
        self.unknown = 0
        self._found: dict[tuple[int, ...], FoldedValues] = {}
        # Keeps objects alive whose ids are memo keys.
        self._held: list[object] = []

    def fold(
        self,
        jaxpr: object,
        values: Sequence[object] = (),
    ) -> FoldedValues:
        """Known values of a program, decisions left out.

        Args:
            jaxpr: The program.
            values: Values of its arguments; None where they are unknown.
        """
        key = (id(jaxpr), *map(id, values))
        if key not in self._found:
            self._held += [jaxpr, *values]
            flat = flatten_program(jaxpr, CALLS)
            _, constants = open_jaxpr(jaxpr)
            inputs = (*constants, *values)
            given = dict(zip(flat.takes, inputs, strict=False))
            self._found[key] = FoldedValues(flat, given, decided=False)
        return self._found[key]


def constant(value: object) -> object:
    """Constant of a program as a NumPy value; None if it is a tracer of an outer trace, or too
    large.
    """
    if not _is_value(value):
        return None
    return np.asarray(value) if hasattr(value, "dtype") else value


def _work(step: Step) -> int:
    if step.name != "dot_general":
        return 0
    (contracted, _), _ = step.eqn.params["dimension_numbers"]
    shape = step.eqn.invars[0].aval.shape
    per_element = math.prod(shape[axis] for axis in contracted)
    return math.prod(step.eqn.outvars[0].aval.shape) * per_element


def _is_float(dtype: DType) -> bool:
    return issubdtype(dtype, np.inexact)


def _is_number(dtype: DType) -> bool:
    """Return whether NumPy has the dtype and it is enabled here (float64 may not be)."""
    return not issubdtype(dtype, extended) and canonicalize_dtype(dtype) == dtype


def _is_value(value: object) -> bool:
    if isinstance(value, (bool, int, float, complex)):
        return True
    if isinstance(value, Tracer):
        return False
    dtype: DType | None = getattr(value, "dtype", None)
    return dtype is not None and _is_number(dtype) and math.prod(np.shape(value)) <= _LARGEST
