"""Calls of a function that captures large arrays: a closure, a global, a default or an object holds
them, and the compiled program takes them as arguments.

As constants they would be compiled, folded and written into the cache with the program. What the
program computes stays what was traced: it gets the very values that the trace captured, as copies,
so that an array which is changed in place or donated later changes nothing, as with `jax.jit`.

Python may have read such an array as well (`float(W[0])`), which leaves no trace. So no program
runs with other values than those of its own trace: another array means another trace, and the cache
has its program if it differs in nothing but that array.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import cast

import jax
from jax.sharding import NamedSharding, PartitionSpec

from ..._body.body import CallPlanner
from ..._body.call_key import trace_key
from ..._body.function import FunctionInfo
from ..._body.placed_calls import PlacedCalls
from ..._jax.mesh import automatic
from ..._jax.programs.large_constants import (
    ConstantsChanged,
    CopyPool,
    LargeConstant,
    has_content,
    large_constants,
    taking_constants,
)
from ..._jax.settings import settings_of_programs
from ..._jax.trees import tree_flatten
from ..._jax.typed import AnyMesh, Jitted
from ..._stages import Jit
from ..._view.layout import MAX_ENTRIES, aval_parts
from ..._view.true_sizes import split_counts
from .captured_names import name_of_captured


@dataclass(frozen=True)
class CapturedArray:
    """A captured array, for the plan.

    Args:
        name: Where the function has it.
        shape: Dtype and shape as text.
        nbytes: Size in bytes.
        obstacle: Why it is a constant of the program; None if it is an argument.
    """

    name: str
    shape: str
    nbytes: int
    obstacle: str | None


@dataclass(frozen=True, eq=False)
class Capture:
    """What one trace has captured.

    Args:
        taking: The function of the trace, which takes the copies after the arrays of a call.
        copies: Copies of the captured arrays.
        arrays: The same for the plan, with those that stay constants.
    """

    taking: Callable[..., object]
    copies: tuple[jax.Array, ...]
    arrays: tuple[CapturedArray, ...]


class CapturedCalls(PlacedCalls[object]):
    """Runs the calls of a body that captures large arrays."""

    def __init__(self, body: CallPlanner, jitted: Jitted):
        super().__init__()
        # No reference to the body: it holds this runner, and a cycle would keep the arrays.
        self._core, self._pool = body.core, body.captured_copies
        self._compile = Jit.of(body.request).compile
        self._placement = body.placement(jitted)
        self.jitted = jitted
        # Key of a trace -> its program, and what it takes after the arrays of a call.
        self._programs: dict[Hashable, tuple[Jitted, Capture]] = {}

    def run_within(self, arrays: Sequence[object]) -> object:
        """Run a call inside a trace: the constants belong to the outer program."""
        return self.jitted(*arrays)

    def run_outermost(self, arrays: Sequence[object]) -> object:
        """Run a call that stands in no trace."""
        key = _key(arrays)
        program, capture = self._programs.get(key) or self._capture(key, arrays)
        try:
            return program(*arrays, *capture.copies)
        except ConstantsChanged:
            # JAX has dropped the trace, and the body was traced once more.
            program, capture = self._capture(key, arrays)
        return program(*arrays, *capture.copies)

    def lower(self, *arrays: object) -> jax.stages.Lowered:
        """Return JAX's lowered program of these arrays or abstract values, as calls run it."""
        return self.lower_with_copies(*arrays)[0]

    def lower_with_copies(
        self,
        *arrays: object,
    ) -> tuple[jax.stages.Lowered, tuple[jax.Array, ...]]:
        """Return the lowered program, and what it takes after the arrays of a call."""
        key = _key(arrays)
        program, capture = self._programs.get(key) or self._capture(key, arrays)
        try:
            return program.lower(*arrays, *capture.copies), capture.copies
        except ConstantsChanged:
            program, capture = self._capture(key, arrays)
        return program.lower(*arrays, *capture.copies), capture.copies

    def arrays_of(self, arrays: Sequence[object]) -> tuple[CapturedArray, ...]:
        """Return what the program of such a call has captured; nothing before its first call."""
        known = self._programs.get(_key(arrays))
        return () if known is None else known[1].arrays

    def _capture(
        self,
        key: Hashable,
        arrays: Sequence[object],
    ) -> tuple[Jitted, Capture]:
        """Trace such a call, and compile nothing yet."""
        capture = capture_of(
            self._core,
            self.jitted,
            arrays,
            self._pool,
            None if self._placement is None else self._placement[0],
        )
        shardings = None
        if self._placement is not None:
            shardings = (*self._placement[1], *(copy.sharding for copy in capture.copies))
        # Where all are constants, the program is the function itself.
        program = self.jitted
        if capture.copies:
            program = cast("Jitted", self._compile(capture.taking, shardings))
        self._programs[key] = program, capture
        return program, capture


def capture_of(
    core: FunctionInfo,
    jitted: Jitted,
    arrays: Sequence[object],
    pool: CopyPool,
    mesh: AnyMesh | None = None,
) -> Capture:
    """Copy the large constants of the trace of a call.

    Args:
        core: The function.
        jitted: JAX's function of the call.
        arrays: Arrays of the call, or abstract values.
        pool: Copies of other traces.
        mesh: The devices that each get a copy; None for the default device.
    """
    fn = core.fn()
    copies: list[jax.Array] = []
    constants: list[object] = []
    told: list[CapturedArray] = []
    jaxpr = jitted.trace(*arrays).jaxpr
    for each in large_constants(jaxpr):
        copy = _copy(
            each,
            arrays,
            pool,
            mesh,
        )
        if not isinstance(copy, str):
            copies.append(copy)
            constants.append(each.value)
        told.append(
            CapturedArray(
                name_of_captured(fn, each.value),
                f"{each.aval.dtype}{list(each.aval.shape)}",
                each.nbytes,
                copy if isinstance(copy, str) else None,
            )
        )
    pairs = tuple(zip(constants, copies, strict=True))
    taking = taking_constants(
        jitted,
        jaxpr,
        constants,
        core.name,
        lambda: any(map(_is_changed, pairs)),
    )
    return Capture(taking, tuple(copies), tuple(told))


def _copy(
    each: LargeConstant,
    arrays: Sequence[object],
    pool: CopyPool,
    mesh: AnyMesh | None,
) -> jax.Array | str:
    """Return a copy, that of another program if its content is the same; or the reason if the array
    has to be a constant.
    """
    if each.is_within:
        return "a compiled function has it inside of a loop or a branch"
    if isinstance(each.value, jax.Array) and each.value.is_deleted():
        return "it was donated before"
    if mesh is not None:
        return _copy_on(mesh, each, pool)
    copy = pool.copy(each.value, None)
    if aval_parts(copy) != aval_parts(each.aval):
        return "JAX converts it"
    for array in tree_flatten((each.value, *arrays))[0]:
        if isinstance(array, jax.Array) and array.devices() != copy.devices():
            return "it is not on the device of the call"
    return copy


def _copy_on(
    mesh: AnyMesh,
    each: LargeConstant,
    pool: CopyPool,
) -> jax.Array | str:
    """Return the same over the devices of a mesh, each of which has all of the array."""
    if jax.process_count() > 1:
        return "processes compare their programs, and constants with them"
    if isinstance(each.value, jax.Array) and len(each.value.devices()) > 1:
        return "it is sharded over devices"
    copy = pool.copy(each.value, NamedSharding(automatic(mesh), PartitionSpec()))
    return copy if aval_parts(copy) == aval_parts(each.aval) else "JAX converts it"


def note_captured(body: CallPlanner, jaxpr: object) -> None:
    """Note whether a trace captures large arrays which the program can take as arguments."""
    # Under an outer transform they are constants of the outer program.
    if not (body.captures or body.request.nested) and large_constants(jaxpr):
        body.note_captures()


def captured_calls(
    body: CallPlanner,
    jitted: Jitted,
) -> CapturedCalls:
    """Return the runner of a body that captures large arrays, the same each time, so that programs
    compiled ahead are found.
    """
    calls = body.captured_calls.get(jitted)
    if not isinstance(calls, CapturedCalls):
        if len(body.captured_calls) >= MAX_ENTRIES:
            body.captured_calls.clear()
        calls = body.captured_calls[jitted] = CapturedCalls(body, jitted)
    return calls


def captured_arrays(
    body: CallPlanner,
    arrays: Sequence[object],
) -> tuple[CapturedArray, ...]:
    """Return the large arrays that the program of such a call has captured; none before its first
    call.
    """
    for calls in reversed([*body.captured_calls.values()]):
        if isinstance(calls, CapturedCalls):
            found = calls.arrays_of(arrays)
            if found:
                return found
    return ()


def _is_changed(pair: tuple[object, jax.Array]) -> bool:
    """Return whether an array of NumPy was changed in place since it was copied."""
    constant, copy = pair
    return not isinstance(constant, jax.Array) and not has_content(constant, copy)


def _key(arrays: Sequence[object]) -> Hashable:
    return trace_key(*split_counts(arrays)), settings_of_programs()
