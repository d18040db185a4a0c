"""Interpreters that rebuild loops and branches, so that what is done to each equation may depend on
traced values.

`Probe` rounds the factors of chosen products, and `Shadow` computes in float64. Together they
measure the error of an autocast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._jax.programs.control import rebuild_cond, rebuild_scan, rebuild_while
from .._jax.programs.jaxprs import (
    called_jaxpr,
    programs,
    rebind,
    solve_operands,
    while_parts,
)
from .._jax.programs.primitives import ARITHMETIC, CALLS, HOLDERS, LOGIC, PRODUCTS, UNROUNDED
from .._jax.trees import issubdtype
from .._jax.typed import AnyJaxpr, Array, Aval, JaxprEqn
from .policy import LOW
from .product_labels import Label, Labelled, ProductInterpreter, ProductSite
from .products import holds_products, solves

DOUBLE = np.dtype(np.float64)
Carry = list[Array]
MakeFunction = Callable[[AnyJaxpr, Sequence[Label]], Callable[..., list[Array]]]
"""From a program and the labels of its arguments to a function that evaluates it."""


class _Rebuild(ProductInterpreter):
    """Interpreter that rebuilds control flow by JAX's public functions, whose bodies may close
    over tracers.
    """

    def evaluate_nested(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        labels: Sequence[Label],
        source: str,
    ) -> Labelled | None:
        name, params = eqn.primitive.name, eqn.params
        if not self.enters(eqn):
            return None
        called_program = called_jaxpr(eqn)
        if called_program is not None:
            return self.run(called_program, operands, labels, source)
        if name == "custom_linear_solve":
            solve = params["jaxprs"].solve
            values = solve_operands(eqn, list(operands))
            return self.run(solve, values, solve_operands(eqn, list(labels)), source)
        origins: list[Label] = []

        def program(jaxpr: AnyJaxpr, labels: Sequence[Label]) -> Callable[..., list[Array]]:
            def run(*values: jax.Array) -> list[Array]:
                out, found = self.run(jaxpr, values, labels, source)
                # The results of a loop are those of its body.
                if jaxpr is not params.get("cond_jaxpr"):
                    origins[:] = found
                return out

            return run

        if name == "cond":
            branches = [program(branch, labels[1:]) for branch in params["branches"]]
            return [*rebuild_cond(operands, branches)], origins
        if name == "while":
            return self.loop(eqn, operands, labels, program), origins
        return [*rebuild_scan(eqn, operands, program(params["jaxpr"], labels))], origins

    def enters(self, eqn: JaxprEqn) -> bool:
        """Return whether an equation that holds programs is rebuilt."""
        raise NotImplementedError

    def loop(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        labels: Sequence[Label],
        program: MakeFunction,
    ) -> list[Array]:
        test_labels, body_labels, carry_labels = while_parts(eqn, list(labels))
        test = program(eqn.params["cond_jaxpr"], [*test_labels, *carry_labels])
        body = program(eqn.params["body_jaxpr"], [*body_labels, *carry_labels])
        return [*rebuild_while(eqn, operands, test, body)]


class Probe(_Rebuild):
    """Interpreter that rounds the factors of chosen products to a low type, in their derivatives
    too, and computes in float32.

    This gives the numbers of the low type, because products of its digits fit into float32.

    Args:
        low: "bf16" or "fp16".
        chosen: Key of a product -> traced bool that rounds it. Products without a key are not
            rounded.
    """

    def __init__(
        self,
        low: str,
        chosen: Mapping[str, Any],
    ):
        self.digits = jnp.finfo(LOW[low])
        self.chosen = chosen
        self.sites: list[ProductSite] = []

    def enters(self, eqn: JaxprEqn) -> bool:
        name = eqn.primitive.name
        if not any(map(holds_products, programs(eqn.params))) or name.startswith("custom"):
            return False
        if name == "while" and solves(eqn):
            return False
        return name in CALLS or name in ("cond", "while", "scan")

    def product(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        site: ProductSite,
    ) -> list[Array]:
        self.sites.append(site)
        flag = self.chosen.get(site.key)
        if site.stays is not None or flag is None:
            return rebind(eqn, operands)
        digits = self.digits

        def low(x: Array, flag: Array) -> jax.Array:
            rounded = jax.lax.reduce_precision(x, digits.nexp, digits.nmant)
            return jax.lax.select(flag, rounded, x)

        def plain(
            x: Array,
            y: Array,
            flag: Array,
            rest: Sequence[Array],
        ) -> jax.Array:
            operands = [low(x, flag), low(y, flag), *rest]
            return rebind(eqn, operands)[0]

        def product(
            x: Array,
            y: Array,
            flag: Array,
            *rest: Array,
        ) -> jax.Array:
            return plain(x, y, flag, rest)

        # The flag is an argument: the rule is called in another trace, and must not close over a
        # tracer.
        def derivative(
            primals: tuple[jax.Array, ...], tangents: tuple[jax.Array, ...]
        ) -> tuple[jax.Array, jax.Array]:
            x, y, flag, *rest = primals
            dx, dy, *_ = tangents
            value = ruled(*primals)
            along_x = low(plain(dx, y, flag, rest), flag)
            along_y = low(plain(x, dy, flag, rest), flag)
            return value, along_x + along_y

        ruled = jax.custom_jvp(product)
        ruled.defjvp(derivative)
        x, y, *rest = operands
        return [ruled(x, y, flag, *rest)]


_SET_APART = frozenset(
    ("complex", "convert_element_type", "imag", "log2", "nextafter", "real", "xor", "iota")
)
_OTHERS = (
    "cholesky copy_p cumlogsumexp cumprod cumsum eigh lu qr reduce_and reduce_or reduce_prod"
    " reduce_sum split svd top_k triangular_solve"
)
_ANY_TYPE = ((ARITHMETIC | LOGIC | UNROUNDED) - _SET_APART) | frozenset(_OTHERS.split())


class Shadow(_Rebuild):
    """Interpreter that computes every real number in float64.

    A primitive that is not known to support float64 is computed in its own dtype.
    """

    def enters(self, eqn: JaxprEqn) -> bool:
        return eqn.primitive.name in HOLDERS

    def number(self, value: Any, aval: Aval) -> Array:
        return jnp.asarray(value, aval.dtype)

    def run(
        self,
        jaxpr: AnyJaxpr,
        operands: Sequence[Array],
        labels: Sequence[Label],
        seen_at: str = "",
    ) -> Labelled:
        doubles = [_double(x) for x in operands]
        out, origins = super().run(jaxpr, doubles, labels, seen_at)
        return [_double(x) for x in out], origins

    def product(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        site: ProductSite,
    ) -> list[Array]:
        del site
        return self.plain(eqn, operands)

    def plain(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
    ) -> list[Array]:
        name = eqn.primitive.name
        doubles = [_double(x) for x in operands]
        changed = {
            parameter: DOUBLE
            for parameter in ("new_dtype", "dtype", "preferred_element_type")
            if _is_real(eqn.params.get(parameter))
        }
        if name in _ANY_TYPE or name in (*PRODUCTS, "convert_element_type", "iota"):
            return rebind(eqn, doubles, **changed)

        # Not known in float64: cast its operands back to the dtypes of the program.
        own: list[Array] = []
        for x, atom in zip(operands, eqn.invars, strict=True):
            is_real = _is_real(atom.aval)
            own.append(jax.lax.convert_element_type(x, atom.aval.dtype) if is_real else x)
        return [_double(x) for x in rebind(eqn, own)]


def _is_real(what: object) -> bool:
    dtype = getattr(what, "dtype", what)
    return dtype is not None and issubdtype(dtype, np.floating)


def _double(x: Array) -> Array:
    if not _is_real(x) or x.dtype == DOUBLE:
        return x
    return jax.lax.convert_element_type(x, DOUBLE)


def in_double(closed: AnyJaxpr, *arrays: Array) -> list[Array]:
    """Results of a program, computed in float64. Call it where float64 is enabled.

    Args:
        closed: The program.
        arrays: Its arguments, of any dtype.
    """
    results, _ = Shadow().run(closed, arrays, [Label(())] * len(arrays))
    return results
