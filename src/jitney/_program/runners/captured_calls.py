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

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import cast

import jax
import numpy as np
from jax.core import Tracer

from ..._body.body import CallPlanner
from ..._body.call_key import trace_key
from ..._jax.large_constants import (
    ConstantsChanged,
    LargeConstant,
    has_content,
    large_constants,
    taking_constants,
)
from ..._jax.mesh import is_within_trace
from ..._jax.settings import settings_of_programs
from ..._jax.trees import tree_flatten
from ..._jax.typed import Jitted
from ..._stages import Jit
from ..._view.layout import aval_parts
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
class _Capture:
    """The program of one trace, and the arrays that it takes after those of the call."""

    program: Jitted
    copies: tuple[jax.Array, ...]
    arrays: tuple[CapturedArray, ...]


class CapturedCalls:
    """Runs the calls of a body that captures large arrays."""

    def __init__(self, body: CallPlanner, jitted: Jitted):
        # No reference to the body: it holds this runner, and a cycle would keep the arrays.
        self._core = body.core
        self._compile = Jit.of(body.request).compile
        self.jitted = jitted
        # Key of a trace -> its program.
        self._captures: dict[Hashable, _Capture] = {}

    def __call__(self, *arrays: object) -> object:
        # Inside a trace the constants belong to the outer program.
        if is_within_trace() or any(isinstance(x, Tracer) for x in tree_flatten(arrays)[0]):
            return self.jitted(*arrays)
        key = _key(arrays)
        capture = self._captures.get(key) or self._capture(key, arrays)
        try:
            return capture.program(*arrays, *capture.copies)
        except ConstantsChanged:
            # JAX has dropped the trace, and the body was traced once more.
            capture = self._capture(key, arrays)
        return capture.program(*arrays, *capture.copies)

    def lower(self, *arrays: object) -> jax.stages.Lowered:
        """Return JAX's lowered program of these arrays or abstract values, as calls run it."""
        key = _key(arrays)
        capture = self._captures.get(key) or self._capture(key, arrays)
        try:
            return capture.program.lower(*arrays, *capture.copies)
        except ConstantsChanged:
            capture = self._capture(key, arrays)
        return capture.program.lower(*arrays, *capture.copies)

    def arrays_of(self, arrays: Sequence[object]) -> tuple[CapturedArray, ...]:
        """Return what the program of such a call has captured; nothing before its first call."""
        capture = self._captures.get(_key(arrays))
        return () if capture is None else capture.arrays

    def _capture(
        self,
        key: Hashable,
        arrays: Sequence[object],
    ) -> _Capture:
        """Copy the large constants of the trace of such a call."""
        fn = self._core.fn()
        copies: list[jax.Array] = []
        constants: list[object] = []
        told: list[CapturedArray] = []
        jaxpr = self.jitted.trace(*arrays).jaxpr
        for each in large_constants(jaxpr):
            copy = self._copy(each, arrays)
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
            self.jitted,
            jaxpr,
            constants,
            self._core.name,
            lambda: any(map(_is_changed, pairs)),
        )
        program = cast("Jitted", self._compile(taking))
        capture = self._captures[key] = _Capture(program, tuple(copies), tuple(told))
        return capture

    def _copy(
        self,
        each: LargeConstant,
        arrays: Sequence[object],
    ) -> jax.Array | str:
        """Return a copy on the default device: that of another program if its content is the same.
        Return the reason if it has to be a constant.
        """
        if each.is_within:
            return "a compiled function has it inside of a loop or a branch"
        if isinstance(each.value, jax.Array) and each.value.is_deleted():
            return "it was donated before"
        value = np.asarray(each.value)
        known = {id(copy): copy for made in self._captures.values() for copy in made.copies}
        same = (copy for copy in known.values() if has_content(value, copy))
        copy = next(same, None)
        if copy is None:
            # JAX copies in a thread of its own, and the caller may overwrite the array next.
            copy = jax.block_until_ready(jax.numpy.array(value, copy=True))
        if aval_parts(copy) != aval_parts(each.aval):
            return "JAX converts it"
        for array in tree_flatten((each.value, *arrays))[0]:
            if isinstance(array, jax.Array) and array.devices() != copy.devices():
                return "it is not on the device of the call"
        return copy


def note_captured(body: CallPlanner, jaxpr: object) -> None:
    """Note whether a trace captures large arrays which the program can take as arguments."""
    # Over several devices, and under an outer transform, they are constants.
    if not (body.captures or body.is_sharded or body.request.nested):
        body.captures = bool(large_constants(jaxpr))


def captured_calls(
    body: CallPlanner,
    jitted: Jitted,
) -> CapturedCalls:
    """Return the runner of a body that captures large arrays, the same each time, so that programs
    compiled ahead are found.
    """
    calls = body.captured_calls
    if not isinstance(calls, CapturedCalls) or calls.jitted is not jitted:
        calls = body.captured_calls = CapturedCalls(body, jitted)
    return calls


def captured_arrays(
    body: CallPlanner,
    arrays: Sequence[object],
) -> tuple[CapturedArray, ...]:
    """Return the large arrays that the program of such a call has captured; none before its first
    call.
    """
    calls = body.captured_calls
    return calls.arrays_of(arrays) if isinstance(calls, CapturedCalls) else ()


def _is_changed(pair: tuple[object, jax.Array]) -> bool:
    """Return whether an array of NumPy was changed in place since it was copied."""
    constant, copy = pair
    return not isinstance(constant, jax.Array) and not has_content(constant, copy)


def _key(arrays: Sequence[object]) -> Hashable:
    return trace_key(*split_counts(arrays)), settings_of_programs()
