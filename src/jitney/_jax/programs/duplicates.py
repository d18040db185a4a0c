"""Common subexpression elimination: equal steps of a program, merged into the first of them.

    1 = sin 0; 2 = sin 0; 3 = mul 1 2   ->   1 = sin 0; 3 = mul 1 1

XLA merges equal operations of one program, but not across two: values that are computed once, and
passed to a program that runs for each chunk, arrive there as parameters, of which XLA does not know
that they are equal, and then all that is computed from them is computed twice. Derivatives have
many such values: each tangent of `x**a` has a power of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from .jaxprs import programs
from .ssa import AnyStep, Const, Ref, Step

_APART: Final = frozenset({"optimization_barrier", "pure_callback", "rng_uniform"})
"""Primitives whose equal equations stay apart: a barrier is meant to, Python may count its calls,
and XLA's own generator has a state.
"""
_SMALL: Final = 1024
"""Bytes of a constant that is compared by its content; larger ones are compared by identity."""


def merge_duplicates(
    steps: Sequence[AnyStep],
    gives: Sequence[Ref],
) -> tuple[tuple[AnyStep, ...], tuple[Ref, ...]]:
    """Merge equal steps: the same primitive with the same parameters, settings and operands.

    Steps with effects or with sub-jaxprs, and those whose parameters have no hash, stay.

    Args:
        steps: The steps of a program in SSA form.
        gives: Its results.

    Returns:
        The steps that remain, in order, and the results.
    """
    first: dict[Hashable, tuple[int, ...]] = {}
    same: dict[int, int] = {}
    kept: list[AnyStep] = []
    for step in steps:
        if not same.keys().isdisjoint(step.numbers):
            step = replace(step, reads=_renumbered(step.reads, same))
        key = _key(step)
        earlier = None if key is None else first.setdefault(key, step.makes)
        if earlier is None or earlier is step.makes:
            kept.append(step)
        else:
            same.update(zip(step.makes, earlier, strict=True))
    return tuple(kept), _renumbered(gives, same)


def _renumbered(refs: Sequence[Ref], same: dict[int, int]) -> tuple[Ref, ...]:
    return tuple(same.get(ref, ref) if isinstance(ref, int) else ref for ref in refs)


def _key(step: Step) -> Hashable | None:
    """Key that equal steps share; None for a step that is not merged."""
    eqn = step.eqn
    if eqn.effects or eqn.primitive.name in _APART or programs(eqn.params):
        return None
    params = tuple(sorted(eqn.params.items(), key=_name))
    reads = tuple(map(_operand, step.reads))
    # The dtype of a literal shows in the results alone.
    makes = tuple(var.aval for var in eqn.outvars)
    key = (eqn.primitive, params, eqn.ctx, reads, makes)
    try:
        hash(key)
    # Some parameters, such as arrays, have no hash.
    except TypeError:
        return None
    return key


def _name(item: tuple[str, object]) -> str:
    return item[0]


def _operand(ref: Ref) -> Hashable:
    """A number as it is; a constant by its type and bits, so that 1, 1.0 and True differ."""
    if not isinstance(ref, Const):
        return ref
    value = ref.value
    if not isinstance(value, (bool, int, float, complex, np.ndarray, np.generic)):
        return "constant", id(value)
    array = np.asarray(value)
    if array.nbytes > _SMALL or array.dtype.hasobject:
        return "constant", id(value)
    return type(value), str(array.dtype), array.shape, array.tobytes()
