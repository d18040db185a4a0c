"""Python arithmetic with sizes, decisions by them, and what programs do with the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._recipe import lines

ATOMS = (
    "{N}",
    "{N}",
    "{N}",
    "3",
    "2",
    "300",
    "6",
    "1.5",
    "8",
    "np.float32(300)",
    "np.int32(6)",
    "np.uint8(200)",
    "np.array(7)",
    "0.5",
    "10**9",
)
ARITHMETIC = (
    "({0} + {1})",
    "({0} - {1})",
    "({0} * {1})",
    "({0} / {1})",
    "({0} // {1})",
    "({0} % {1})",
    "({0} * ({0} - 1) / 2)",
    "(1 - {0} / ({0} + 1))",
    "max({0}, {1})",
    "min({0}, {1})",
    "{0} ** 2",
    "{0} ** 0.5",
    "math.sqrt({0})",
    "np.sqrt({0})",
    "np.log({0})",
    "divmod({0}, {1})[0]",
    "int({0})",
    "float({0})",
    "abs({0} - {1})",
    "-{0}",
    "round({0})",
    "np.minimum({0}, {1})",
    "math.prod(({0}, {1}))",
    "sum(({0}, {1}))",
    "{0}.bit_length()",
    "operator.index({0})",
    "np.array({0}, np.float64)",
    "np.float64({0}) / 3",
    "jnp.asarray({0})",
    "1 / {0}",
    "({0} - 1) / {0}",
)
DECISIONS = (
    "{0} == {1}",
    "{1} == {0}",
    "{0} != {1}",
    "{0} < {1}",
    "{0} >= {1}",
    "{0} in ({1}, 6)",
    "{0} in np.array([{1}, 7])",
    "{0} in {{6, 7}}",
    "{0} == np.array({1})",
    "np.array({1}) == {0}",
    "{0} == Fraction({1})",
    "{0} == complex({1})",
    "isinstance({0}, int)",
    "type({0}) is int",
    "hasattr({0}, 'bit_length')",
    "{0} % 2",
    "{0} is {1}",
    "f'{{{0}}}' == '6'",
    "str({0}) == '7'",
    "hash({0}) == 7",
    "len(range({0})) > 6",
    "tried(lambda: {0} == {1})",
    "tried(lambda: {0} > 6)",
    "matched({0})",
    "{0}.__class__ is int",
    "bool({0})",
    "callable({0})",
    "{0}.__eq__({1}) is True",
    "isinstance({0}, numbers.Number)",
    "{0} & 1",
    "np.isscalar({0})",
    "copy.copy({0}) == 6",
)
PRELUDE = """
def tried(question):
    try:
        return bool(question())
    except Exception:
        return False


def matched(size):
    match size:
        case 6 | 300:
            return True
        case int():
            return False
        case _:
            return True
"""
RECIPES = [
    *lines(
        """
        {x} * ({P})
        {x} + ({P})
        jnp.sum({x}) / ({P})
        jnp.sum({x}) * ({P})
        jnp.where({x} > ({P}), {x}, 0)
        jnp.float32({P}) * jnp.sum({v})
        jnp.array([{P}, 1.0]) * jnp.sum({v})
        np.array([{P}, 1.0]) * jnp.float32(2) + 0 * jnp.sum({x})
        jnp.full(3, {P}) + 0 * jnp.sum({x})
        {x}[({P}) % 4]
        {x}[: max(1, int({P}) % 5)]
        {x}[int({P}) % 3 :]
        {x}[{x}.shape[0] // 2]
        {x}[jnp.array([{P}])]
        jnp.take({x}, {P}, axis=0)
        {x}.at[{P}].set(1)
        jnp.arange({P}) + 0 * jnp.sum({x})
        jnp.arange({x}.shape[0]) == ({P})
        jnp.roll({x}, {P}, axis=0)
        lax.fori_loop(0, ({P}) % 40, lambda k, c: c + k, jnp.sum({x}) * 0)
        lax.dynamic_slice_in_dim({x}, {P}, 1)
        {x} + np.arange({x}.shape[0])
        jnp.linspace(0, {P}, 4) + 0 * jnp.sum({x})
        """,
        "real",
    ),
    *lines(  # parts of buffers that are longer than any size, as long as the size
        """
        {v} * (jnp.arange(70001) % 7).astype({v}.dtype)[: {v}.shape[0]]
        {m} + (jnp.arange(210009) % 5).astype({m}.dtype).reshape(-1, 3)[: {m}.shape[0]]
        {m} * (jnp.arange(210009) % 5).astype({m}.dtype).reshape(3, -1)[:, 2 : {m}.shape[0] + 2].T
        {v} + (jnp.arange(70001) % 7).astype({v}.dtype)[-{v}.shape[0] :]
        {v} + lax.dynamic_slice_in_dim(jnp.arange(70001) % 7, {j}[0].astype(jnp.int32), {v}.shape[0]).astype({v}.dtype)
        {v} + lax.slice_in_dim(jnp.arange(70001) % 7, 3, {v}.shape[0] + 3).astype({v}.dtype)
        {v} + jnp.take(jnp.arange(70001) % 7, jnp.arange({v}.shape[0])).astype({v}.dtype)
        jax.vmap(lambda k: lax.dynamic_slice_in_dim(jnp.arange(70001) % 7, k, {v}.shape[0]))({j}.astype(jnp.int32)) + 0 * jnp.sum({v}).astype(int)
        {v} + jnp.sum((jnp.arange(64) % 3).astype({v}.dtype)[: {v}.shape[0]])
        {q} * jnp.tril(jnp.ones((64, 64), {q}.dtype))[: {q}.shape[0], : {q}.shape[0]]
        jnp.zeros(70001, {v}.dtype).at[: {v}.shape[0]].set({v})[: {v}.shape[0] + 4]
        jnp.ones((70001, 3), {m}.dtype).at[2 : {m}.shape[0] + 2].add({m})[: {m}.shape[0] + 4]
        jnp.ones(70001, {v}.dtype).at[: {v}.shape[0]].max({v})[: {v}.shape[0] + 4]
        lax.dynamic_update_slice_in_dim(jnp.ones(70001, {v}.dtype), {v}, {j}[1].astype(jnp.int32), 0)[: 2 * {v}.shape[0]]
        """,
        "real",
    ),
    *lines(
        """
        jax.grad(lambda p: jnp.sum(jnp.sin(p[: {v}.shape[0]] * {v})))(jnp.ones(70001, {v}.dtype))[: {v}.shape[0] + 4]
        jax.grad(lambda p: jnp.mean(p[1 : {m}.shape[0] + 1] * {m}))(jnp.ones((70001, 3), {m}.dtype))[: {m}.shape[0] + 4]
        jax.grad(lambda p: jnp.sum(lax.dynamic_slice_in_dim(p, {j}[0].astype(jnp.int32), {v}.shape[0]) * {v}))(jnp.ones(70001, {v}.dtype))[: 2 * {v}.shape[0]]
        jax.grad(lambda e: jnp.sum(jnp.square(jnp.ones(70001, e.dtype).at[: e.shape[0]].set(e))))({v})
        """,
        "wide",
    ),
    *lines(
        """
        ({x} * 2 if {Q} else {x})
        jnp.sum({x}) * (2 if {Q} else 1)
        {x}[0 if {Q} else 1]
        {x}[1 if {Q} else 0 :]
        jnp.where({Q}, {x}, 0)
        {x} * np.array([1.0, 2.0])[int(bool({Q}))]
        {x} + jnp.asarray({Q})
        ({x} > 0) & ({Q})
        """,
        "real",
    ),
]


def arithmetic(rng: Any, size: str, depth: int = 2) -> str:
    """A Python expression of the size."""
    if depth == 0 or rng.random() < 0.25:
        return pick(rng, ATOMS).replace("{N}", size)
    return pick(rng, ARITHMETIC).format(*(arithmetic(rng, size, depth - 1) for _ in range(2)))


def decision(rng: Any, size: str) -> str:
    """A question about the size."""
    left = size if rng.random() < 0.7 else arithmetic(rng, size, 1)
    return pick(rng, DECISIONS).format(
        left, pick(rng, ("6", "7", "8", "300", "5", "2", "np.int64(7)", "7.0"))
    )


def pick(rng: Any, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


Written = Callable[[Any, str], str]
