"""The cases of `_cases.py` that the core of the tests takes use each rule, padded and in chunks."""

import pytest

from jitney._axes import demand, trace
from jitney._axes.interpreter import Op
from jitney._axes.rules import RULES
from jitney._jax.programs.jaxprs import equations
from tests.axes import _cases as cases
from tests.axes.test_chunked import is_cut

RANGES = {"d0": (5, 8)}
CORE = [case for case in cases.CASES if case.core]

# of other versions of JAX
OTHER_NAMES = {"scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"}
# of run-time checks: tests/stages/test_pad.py and test_chunk.py
OF_EQUINOX = {"unvmap_any", "unvmap_all", "unvmap_max", "nonbatchable"}
REFUSALS = {  # along the axis, whatever is asked of them: test_table.py
    *("cholesky_update", "geqp3", "hessenberg", "tridiagonal"),
    *("eig", "householder_product", "schur"),
}
CALLBACKS = {"pure_callback", "io_callback", "debug_callback", "debug_print"}  # test_effects.py
# `empty` is `jnp.empty`'s, and `call_hi_primitive` and `unstack` are of newer versions of JAX.
ELSEWHERE = {
    *OTHER_NAMES,
    *OF_EQUINOX,
    *REFUSALS,
    *CALLBACKS,
    "empty",
    "number_of_size",  # test_unify_traces.py
    "ormqr",
    "tridiagonal_solve",
    "call_hi_primitive",
    "unstack",
}


def along(case, ranges=RANGES):
    """The rules of the operations of its body that see the axis; it can be padded."""
    program = trace(case.flat, lambda sizes: case.avals(sizes["d0"]), ranges)
    demand(program.jaxpr, ranges)
    names = {
        op.name for op in (Op(eqn, ranges) for eqn in equations(program.jaxpr)) if op.is_ragged
    }
    return {id(RULES[name]) for name in names & RULES.keys()}


def test_the_core_names_bodies():
    """A name that is written wrongly would take its rule out."""
    names = {case.name for case in cases.CASES}
    assert names >= cases.CORE >= cases.PADDED_ALONE | set(cases.FEW)
    assert names >= set(cases.MORE)


@pytest.mark.rest
def test_each_rule_is_padded_in_the_core():
    """Operations that share a rule are one: all of those that treat each element alone."""
    used = set().union(*map(along, CORE))
    unused = {name for name, rule in RULES.items() if id(rule) not in used}
    assert unused - ELSEWHERE == set()


@pytest.mark.rest
def test_each_way_on_from_chunk_to_chunk_is_gone_in_the_core():
    """Of each rule that has one."""
    used = set().union(*(along(case) for case in CORE if case.cut_in_core and is_cut(case)))
    unused = {
        name for name, rule in RULES.items() if rule.carrier is not None and id(rule) not in used
    }
    assert unused - OTHER_NAMES - OF_EQUINOX == set()
