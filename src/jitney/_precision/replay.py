"""Interpreters that rebuild loops and branches, so that what is done to each equation may depend on
traced values.

`Probe` rounds the factors of chosen products, and `Shadow` computes in float64. Together they
measure the error of an autocast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._jax.jaxprs import bound, called, programs, scan_parts, solve_operands, while_parts
from .._jax.primitives import ARITHMETIC, CALLS, HOLDERS, LOGIC, PRODUCTS, UNROUNDED
from .._jax.trees import issubdtype
from .._jax.typed import Aval, JaxprEqn
from .policy import LOW
from .product_labels import Label, ProductInterpreter, ProductSite
from .products import holds_products, solves

DOUBLE = np.dtype(np.float64)


class _Rebuild(ProductInterpreter):
    """Interpreter that rebuilds control flow by JAX's public functions, whose bodies may close
    over tracers.
    """

    def other(
        self, eqn: Any, operands: Sequence[Any], labels: Sequence[Label], source: str
    ) -> tuple[list[Any], list[Label]] | None:
        name, params = eqn.primitive.name, eqn.params
        if not self.enters(eqn):
            return None
        called_program = called(eqn)
        if called_program is not None:
            return self.run(called_program, operands, labels, source)
        if name == "custom_linear_solve":
            given = list(zip(operands, labels, strict=True))
            inside = solve_operands(eqn, given)
            return self.run(
                params["jaxprs"].solve,
                [value for value, _ in inside],
                [label for _, label in inside],
                source,
            )
        origins: list[Label] = []

        def program(jaxpr: object, labels: Sequence[Label]) -> Any:
            def run(*values: object) -> list[Any]:
                out, origins[:] = self.run(jaxpr, values, labels, source)
                return out

            return run

        if name == "cond":
            branches = [program(branch, labels[1:]) for branch in params["branches"]]
            return list(jax.lax.switch(operands[0], branches, *operands[1:])), origins
        if name == "while":
            return self.loop(eqn, operands, labels, program), origins
        fixed, carry, rows = scan_parts(eqn, list(operands))
        body = program(params["jaxpr"], labels)

        def turn(carry: Any, row: Any) -> Any:
            out = body(*fixed, *carry, *row)
            return out[: len(carry)], out[len(carry) :]

        last, ys = jax.lax.scan(
            turn, carry, rows, length=params["length"], reverse=params["reverse"]
        )
        return [*last, *ys], origins

    def enters(self, eqn: JaxprEqn) -> bool:
        """Return whether an equation that holds programs is rebuilt."""
        raise NotImplementedError

    def loop(
        self, eqn: Any, operands: Sequence[jax.Array], labels: Sequence[Label], program: Any
    ) -> list[Any]:
        outside, inside, carry = while_parts(eqn, list(operands))
        tested, told, carried = while_parts(eqn, list(labels))
        test = program(eqn.params["cond_jaxpr"], [*tested, *carried])
        body = program(eqn.params["body_jaxpr"], [*told, *carried])

        def goes_on(values: Any) -> Any:
            return test(*outside, *values)[0]

        def turn(values: Any) -> Any:
            return body(*inside, *values)

        return list(jax.lax.while_loop(goes_on, turn, carry))


class Probe(_Rebuild):
    """Interpreter that rounds the factors of chosen products to a low type, in their derivatives
    too, and computes in float32.

    This gives the numbers of the low type, because products of its digits fit into float32.

    Args:
        low: "bf16" or "fp16".
        chosen: Key of a product -> traced bool that rounds it. Products without a key are not
            rounded.
    """

    def __init__(self, low: str, chosen: Mapping[str, Any]):
        self.digits: Any = jnp.finfo(LOW[low])
        self.chosen = chosen
        self.sites: list[ProductSite] = []

    def enters(self, eqn: JaxprEqn) -> bool:
        name = eqn.primitive.name
        if (
            sum(map(holds_products, programs(eqn.params))) == 0
            or name.startswith("custom")
            or (name == "while" and solves(eqn))
        ):
            return False
        return name in CALLS or name in ("cond", "while", "scan")

    def product(self, eqn: Any, operands: Sequence[jax.Array], site: ProductSite) -> list[Any]:
        self.sites.append(site)
        flag = self.chosen.get(site.key)
        if site.stays is not None or flag is None:
            return bound(eqn, operands)
        digits = self.digits

        def low(x: Any, flag: Any) -> Any:
            return jax.lax.select(flag, jax.lax.reduce_precision(x, digits.nexp, digits.nmant), x)

        def plain(x: Any, y: object, flag: object, rest: Sequence[object]) -> Any:
            return bound(eqn, [low(x, flag), low(y, flag), *rest])[0]

        def product(x: jax.Array, y: object, flag: object, *rest: object) -> Any:
            return plain(x, y, flag, rest)

        # The flag is an argument: the rule is called in another trace, and must not close over a
        # tracer.
        def derivative(primals: Any, tangents: Any) -> Any:
            (x, y, flag, *rest), (dx, dy, *_) = primals, tangents
            return ruled(*primals), low(plain(dx, y, flag, rest), flag) + low(
                plain(x, dy, flag, rest), flag
            )

        ruled = jax.custom_jvp(product)
        ruled.defjvp(derivative)
        return [ruled(operands[0], operands[1], flag, *operands[2:])]


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

    def number(self, value: Any, aval: Aval) -> Any:
        return jnp.asarray(value, aval.dtype)

    def run(
        self, jaxpr: object, operands: Sequence[object], labels: Sequence[Label], seen_at: str = ""
    ) -> tuple[list[Any], list[Label]]:
        out, origins = super().run(jaxpr, [_double(x) for x in operands], labels, seen_at)
        return [_double(x) for x in out], origins

    def product(self, eqn: JaxprEqn, operands: Sequence[jax.Array], site: ProductSite) -> list[Any]:
        del site
        return self.plain(eqn, operands)

    def plain(self, eqn: JaxprEqn, operands: Sequence[jax.Array]) -> list[Any]:
        name, values = eqn.primitive.name, [_double(x) for x in operands]
        changed: dict[str, Any] = {}
        for parameter in ("new_dtype", "dtype", "preferred_element_type"):
            if parameter in eqn.params and _is_real(eqn.params[parameter]):
                changed[parameter] = DOUBLE
        if name in _ANY_TYPE or name in (*PRODUCTS, "convert_element_type", "iota"):
            return bound(eqn, values, **changed)

        # Not known in float64: cast its operands back to the dtypes of the program.
        given = [
            jax.lax.convert_element_type(x, a.aval.dtype) if _is_real(a.aval) else x
            for x, a in zip(operands, eqn.invars, strict=True)
        ]
        return [_double(x) for x in bound(eqn, given)]


def _is_real(what: object) -> bool:
    dtype = getattr(what, "dtype", what)
    return dtype is not None and issubdtype(dtype, np.floating)


def _double(x: Any) -> Any:
    return jax.lax.convert_element_type(x, DOUBLE) if _is_real(x) and x.dtype != DOUBLE else x


def in_double(closed: object, *arrays: object) -> list[Any]:
    """Results of a program, computed in float64. Call it where float64 is enabled.

    Args:
        closed: The program.
        arrays: Its arguments, of any dtype.
    """
    return Shadow().run(closed, arrays, [Label(())] * len(arrays))[0]
