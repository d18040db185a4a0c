"""Large constants of a plan, as values that its programs take: what a function captures is compiled
into none of its passes then.

    1 = mul Const(weight) 0   ->   1 = mul 2 0, and 2 is the weight
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import numpy as np
from jax.core import Tracer

from ..._jax.programs.large_constants import LARGE
from ..._jax.programs.ssa import Const, Ref
from ..._jax.trees import canonicalize_dtype
from .numbered import Node
from .passes import Passes


def number_constants(passes: Passes) -> tuple[Passes, dict[int, object]]:
    """Return the same plan with numbers in place of the large constants that its operations read;
    and these constants.
    """
    numbers: dict[int, int] = {}
    constants: dict[int, object] = {}

    def number(ref: Ref) -> Ref:
        if isinstance(ref, int) or not _is_captured(ref):
            return ref
        n = numbers.setdefault(id(ref.value), len(passes.flat.avals) + len(numbers))
        constants[n] = ref.value
        return n

    # A node stands in the program and in the pass that it belongs to, and is one object in both.
    made: dict[int, Node] = {}

    def reading(nodes: Sequence[Node]) -> tuple[Node, ...]:
        for node in nodes:
            if id(node) not in made and any(map(_is_captured, node.reads)):
                made[id(node)] = replace(node, reads=tuple(map(number, node.reads)))
        return tuple(made.get(id(node), node) for node in nodes)

    nodes = reading(passes.flat.steps)
    turns = tuple(
        replace(work, before=reading(work.before), nodes=reading(work.nodes))
        for work in passes.passes
    )
    after, at_once = reading(passes.after), reading(passes.at_once)
    if not constants:
        return passes, constants
    avals = {n: jax.typeof(value) for n, value in constants.items()}
    flat = replace(passes.flat, steps=nodes, avals={**passes.flat.avals, **avals})
    numbered = replace(
        passes,
        flat=flat,
        passes=turns,
        after=after,
        at_once=at_once,
    )
    return numbered, constants


def _is_captured(ref: Ref) -> bool:
    """Return whether an operand is a large array, of which a copy has the same type."""
    value = ref.value if isinstance(ref, Const) else None
    if isinstance(value, Tracer) or not isinstance(value, (jax.Array, np.ndarray)):
        return False
    if getattr(value, "weak_type", False) or not isinstance(value.dtype, np.dtype):
        return False
    return value.nbytes > LARGE and canonicalize_dtype(value.dtype) == value.dtype
