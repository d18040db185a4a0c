"""Matrix products: which equations count, how they are computed in a low type, and which stay in
float32 because a solve is near.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .._jax.programs.jaxprs import equations, open_jaxpr, programs, rebind, source_of, variables
from .._jax.programs.primitives import FACTORISATIONS, PRODUCTS, REARRANGED
from .._jax.typed import AnyJaxpr, Array, Atom, DType, JaxprEqn, Var

SINGLE = np.dtype(jnp.float32)
SOLVERS = FACTORISATIONS | frozenset(
    (
        "custom_linear_solve",
        "linear_solve",
        "lu_pivots_to_permutation",
        "symmetric_product",
        "triangular_solve",
        "tridiagonal",
        "tridiagonal_solve",
    )
)
"""Names of the solves and factorisations of JAX and lineax."""
MOVES = REARRANGED | frozenset(
    (
        "convert_element_type",
        "copy",
        "copy_p",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "optimization_barrier",
        "pad",
        "reduce_precision",
        "select_n",
        "sharding_constraint",
        "split",
        "stop_gradient",
    )
)
"""Primitives whose result holds the numbers of their operands."""
LINEAR = MOVES | {"add", "add_any", "div", "mul", "neg", "sub", "reduce_sum"}


def is_product(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a matrix product or a convolution in float32.

    Inner products of vectors do not count, since they are reductions; nor does a product with an
    explicit precision.
    """
    if eqn.primitive.name not in PRODUCTS:
        return False
    if not all(map(_is_single, (*eqn.invars[:2], *eqn.outvars))):
        return False
    if not _is_default(eqn.params.get("precision")):
        return False
    if eqn.primitive.name != "dot_general":
        return True

    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    rank = len(eqn.outvars[0].aval.shape)
    return len(contracted) > 0 and rank > len(batch)


def _is_single(atom: Atom) -> bool:
    return atom.aval.dtype == SINGLE


def _is_default(precision: object) -> bool:
    parts = tuple(precision) if isinstance(precision, tuple) else (precision,)
    return all(part is None or part == jax.lax.Precision.DEFAULT for part in parts)


_elsewhere: ContextVar[bool] = ContextVar("jitney traces for other devices", default=False)


@contextmanager
def elsewhere() -> Generator[None]:
    """Trace programs as for devices that have kernels for all products, to inspect them and not
    to run them.
    """
    token = _elsewhere.set(True)
    try:
        yield
    finally:
        _elsewhere.reset(token)


def holds_products(jaxpr: AnyJaxpr) -> int:
    """Number of products in a program and its sub-jaxprs."""
    return sum(map(is_product, equations(jaxpr)))


def low_product(
    eqn: JaxprEqn,
    x: Array,
    y: Array,
    low: DType,
    rest: Sequence[Array] = (),
) -> jax.Array:
    """Product with its factors rounded to a low type, accumulated in float32.

    The factors of the derivative's products are rounded too: left to JAX, the transposed product
    would take the cotangent in float32 and so run in float32. The result of such a product is
    rounded once, as JAX does with the cotangent of any low value.
    """

    native = has_kernels(low)
    digits = jax.numpy.finfo(low)

    # Rounded to the grid of the low type, but still float32: for devices without kernels.
    def rounded(x: Array) -> jax.Array:
        return jax.lax.reduce_precision(x, digits.nexp, digits.nmant)

    def plain(
        x: Array,
        y: Array,
        out: DType,
        rest: Sequence[Array],
    ) -> jax.Array:
        if native:
            operands = [_as(x, low), _as(y, low), *rest]
            return rebind(eqn, operands, preferred_element_type=out)[0]
        operands = [rounded(x), rounded(y), *rest]
        result = rebind(eqn, operands)[0]
        return result if out == SINGLE else rounded(result)

    def product(
        x: jax.Array,
        y: jax.Array,
        *rest: jax.Array,
    ) -> jax.Array:
        return plain(x, y, SINGLE, rest)

    # The product rule. `symbolic_zeros` leaves out the product of a factor that is not
    # differentiated.
    def derivative(
        primals: tuple[jax.Array, ...], tangents: tuple[jax.Array | SymbolicZero, ...]
    ) -> tuple[jax.Array, jax.Array]:
        x, y, *rest = primals
        dx, dy, *_ = tangents
        out = ruled(x, y, *rest)
        terms: list[jax.Array] = []
        if not isinstance(dx, SymbolicZero):
            terms.append(plain(dx, y, low, rest))
        if not isinstance(dy, SymbolicZero):
            terms.append(plain(x, dy, low, rest))
        if not terms:
            return out, jnp.zeros_like(out)

        tangent = _as(terms[0], SINGLE)
        for term in terms[1:]:
            tangent = _as(term, SINGLE) + tangent
        return out, tangent

    ruled = jax.custom_jvp(product)
    ruled.defjvp(derivative, symbolic_zeros=True)
    return ruled(x, y, *rest)


def has_kernels(low: DType) -> bool:
    """Return whether products of a low type run anywhere in a program.

    On CPUs the compiler of jaxlib 0.10.0 to 0.12.0.1 fuses some bfloat16 products such that no
    kernel is left for them ("Unsupported element type for DotThunk::Execute"), for one in gradients
    of attention. There the factors are rounded and multiplied in float32: the same numbers, since
    products of eight digits fit. Delete this when such a program runs without the flag that is
    looked for here.
    """
    if _elsewhere.get():
        return True
    flags = os.environ.get("XLA_FLAGS", "")
    fuses = re.search(r"--xla_cpu_experimental_ynn_fusion_type=(\s|$)", flags) is None
    return not (fuses and low == jnp.bfloat16 and jax.default_backend() == "cpu")


def _as(x: Array, dtype: DType) -> jax.Array:
    return jax.lax.convert_element_type(x, dtype)


def solves(eqn: JaxprEqn) -> bool:
    """Return whether an equation is a solve or a factorisation, or holds one."""
    if eqn.primitive.name in SOLVERS:
        return True
    for program in programs(eqn.params):
        if any(inner.primitive.name in SOLVERS for inner in equations(program)):
            return True
    return False


def near_solves(program: AnyJaxpr) -> set[Var]:
    """Results of the products that feed a solve or factorisation, or that work on its result.

    Only moves and linear equations stand between: the Gram matrix of normal equations, a step along
    a solution. An error in these is amplified by the condition number of the system.
    """
    marked = [solves(eqn) for eqn in program.eqns]
    if not any(marked):
        return set()
    order = range(len(program.eqns))
    behind = _reached_products(program, marked, order, _forwards)
    before = _reached_products(program, marked, reversed(order), _backwards)
    return behind | before


def _forwards(eqn: JaxprEqn) -> tuple[Sequence[Atom], Sequence[Atom]]:
    return eqn.invars, eqn.outvars


def _backwards(eqn: JaxprEqn) -> tuple[Sequence[Atom], Sequence[Atom]]:
    return eqn.outvars, eqn.invars


Ends = Callable[[JaxprEqn], tuple[Sequence[Atom], Sequence[Atom]]]
"""Variables of an equation at which a walk comes in, and those at which it goes out."""


def _reached_products(
    program: AnyJaxpr,
    marked: Sequence[bool],
    order: Iterable[int],
    ends: Ends,
) -> set[Var]:
    """Results of the products that are reached from a solve in one direction of the program."""
    near: set[Var] = set()
    results: set[Var] = set()
    for i in order:
        eqn = program.eqns[i]
        here, there = ends(eqn)
        product = is_product(eqn)
        reached = not near.isdisjoint(variables(here))
        # Only products and linear equations pass the mark on.
        if marked[i] or (reached and (product or eqn.primitive.name in LINEAR)):
            near.update(variables(there))
            if product:
                results.add(eqn.outvars[0])
    return results


def breaks_low(
    jaxpr: AnyJaxpr,
    low: DType,
    seen_at: str = "",
) -> tuple[str, str] | None:
    """First solve or factorisation of a low type in a program, with its line; None if there is
    none.
    """
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        source = source_of(eqn, seen_at)
        if eqn.primitive.name in SOLVERS and any(_dtype(atom) == low for atom in eqn.invars):
            return eqn.primitive.name, source
        for program in programs(eqn.params):
            solve = breaks_low(program, low, source)
            if solve is not None:
                return solve
    return None


def _dtype(atom: Atom) -> object:
    return getattr(atom.aval, "dtype", None)
