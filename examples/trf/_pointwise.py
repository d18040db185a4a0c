"""Prove that a traced function is pointwise, and evaluate it for some of its points.

A function of arrays along m points is pointwise if each point of its results depends on that point
of its arguments alone. This is read off its jaxpr, traced at the full size: whatever has one axis
of length m has the points there, and each equation that touches such an array must be one that
treats its elements apart. So `t.size` stays the size of all, and positions (`jnp.arange(m)`), sums,
sorts and whatever is not listed here are no pointwise function.
"""

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jaxtyping import Array

ELEMENTWISE = frozenset(
    [
        "abs",
        "acos",
        "acosh",
        "add",
        "add_any",
        "and",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "bessel_i0e",
        "bessel_i1e",
        "cbrt",
        "ceil",
        "clamp",
        "complex",
        "conj",
        "convert_element_type",
        "copy",
        "cos",
        "cosh",
        "digamma",
        "div",
        "eq",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "ge",
        "gt",
        "igamma",
        "igammac",
        "imag",
        "integer_pow",
        "is_finite",
        "le",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "lt",
        "max",
        "min",
        "mul",
        "ne",
        "neg",
        "nextafter",
        "not",
        "or",
        "polygamma",
        "pow",
        "real",
        "reduce_precision",
        "rem",
        "round",
        "rsqrt",
        "select_n",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "sub",
        "tan",
        "tanh",
        "xor",
    ]
)
REDUCED = frozenset(
    ["reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"]
)


def axis_of(shape: Sequence[int], m: int) -> int | None:
    """Find the axis along the points, if there is one."""
    return shape.index(m) if m in shape else None


def is_pointwise(traced: ClosedJaxpr, m: int) -> bool:
    """Tell whether it is proven that each point is treated alone, and that nothing but its result
    tells how often it ran.
    """
    if traced.effects:  # prints, callbacks
        return False
    variables = (*traced.jaxpr.invars, *traced.jaxpr.constvars)
    return all(_single(of.aval.shape, m) for of in variables) and _is_pointwise(traced.jaxpr, m)


def _single(shape: Sequence[int], m: int) -> bool:
    return tuple(shape).count(m) <= 1


def _is_pointwise(jaxpr: Jaxpr, m: int) -> bool:
    for equation in jaxpr.eqns:
        shapes = [tuple(getattr(of.aval, "shape", ())) for of in equation.invars]
        given = [tuple(getattr(of.aval, "shape", ())) for of in equation.outvars]
        if not any(m in shape for shape in (*shapes, *given)):
            continue  # of the parameters alone
        inner = _inner(equation)
        if inner is not None:
            if not is_pointwise(inner, m):
                return False
            continue
        axis = _axis_after(equation.primitive.name, equation.params, shapes, given[0], m)
        if not all(_single(shape, m) and axis_of(shape, m) == axis for shape in given):
            return False
    return True


def _inner(equation: Any) -> ClosedJaxpr | None:
    """Give the program that is called, of what `jax.jit` marks or has its own derivative."""
    held = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr"}
    name = equation.primitive.name
    return equation.params[held[name]] if name in held else None


def _axis_after(
    name: str, params: Any, shapes: Sequence[tuple[int, ...]], given: tuple[int, ...], m: int
) -> int | None:
    """Find the points behind an operation that treats them apart; -1 if it may not."""
    axes = [axis_of(shape, m) for shape in shapes]
    if not axes:
        return -1  # positions, random numbers
    axis = axes[0]
    if name in ELEMENTWISE:
        whole = all(shape == () or _fits(shape, given) for shape in shapes)
        return axis_of(given, m) if whole and any(a is not None for a in axes) else -1
    if name == "broadcast_in_dim":
        return axis_of(given, m) if axis is None else params["broadcast_dimensions"][axis]
    if name == "dot_general":
        return _axis_of_product(params["dimension_numbers"], shapes, axes)
    if name == "concatenate":
        same = len(set(axes)) == 1 and axis is not None
        return axis if same and params["dimension"] != axis else -1
    if axis is None or any(other != axis for other in axes[1:]):
        return -1
    if name == "stack":
        return axis + (params["axis"] <= axis)
    if name == "unstack":
        return -1 if params["axis"] == axis else axis - (params["axis"] < axis)
    if name in REDUCED:
        return -1 if axis in params["axes"] else axis - sum(a < axis for a in params["axes"])
    if name == "squeeze":
        return axis - sum(a < axis for a in params["dimensions"])
    if name == "reshape":
        alike = [size for size in shapes[0] if size > 1] == [size for size in given if size > 1]
        return axis_of(given, m) if alike and params["dimensions"] is None else -1
    if name == "transpose":
        return tuple(params["permutation"]).index(axis)
    if name in ("slice", "dynamic_slice"):  # of other axes
        return axis if len(given) == len(shapes[0]) and given[axis] == m else -1
    if name == "split":
        return axis if params["axis"] != axis else -1
    return -1


def _fits(shape: tuple[int, ...], given: tuple[int, ...]) -> bool:
    """Tell whether a shape is the given one, but for axes of length 1."""
    return len(shape) == len(given) and all(a in (1, b) for a, b in zip(shape, given, strict=True))


def _axis_of_product(
    numbers: Any, shapes: Sequence[tuple[int, ...]], axes: Sequence[int | None]
) -> int | None:
    """Find the points behind a product of an array along them with one that is not."""
    (contracted, batch) = numbers
    if any(map(len, batch)) or all(axis is not None for axis in axes):
        return -1
    side = 0 if axes[0] is not None else 1
    axis = cast(int, axes[side])
    if axis in contracted[side]:
        return -1
    before = len(shapes[0]) - len(contracted[0]) if side else 0
    return before + axis - sum(a < axis for a in contracted[side])


def at_points(
    traced: ClosedJaxpr, args: Sequence[Array], m: int, start: Any, size: int
) -> list[Array]:
    """Evaluate a pointwise function for `size` points from `start` on, without derivatives.

    Args:
        traced: The function.
        args: All of its arguments.
        m: Number of all points.
        start: The first of those that are wanted.
        size: How many.
    """

    def part(value: Array) -> Array:
        axis = axis_of(jnp.shape(value), m)
        value = jax.lax.stop_gradient(jnp.asarray(value))
        return value if axis is None else jax.lax.dynamic_slice_in_dim(value, start, size, axis)

    return _evaluated(traced.jaxpr, [*map(part, traced.consts)], [*map(part, args)], m, size)


def _evaluated(
    jaxpr: Jaxpr, consts: Sequence[Array], args: Sequence[Array], m: int, size: int
) -> list[Array]:
    known: dict[Any, Any] = dict(
        zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True)
    )

    def value(of: Any) -> Any:
        return of.val if isinstance(of, Literal) else known[of]

    for equation in jaxpr.eqns:
        values = [value(of) for of in equation.invars]
        inner = _inner(equation)
        along = any(
            m in getattr(of.aval, "shape", ()) for of in (*equation.invars, *equation.outvars)
        )
        if inner is not None and along:
            results = _evaluated(inner.jaxpr, inner.consts, values, m, size)
        else:
            params = _resized(equation, m, size) if along else equation.params
            primitive = equation.primitive
            results = primitive.bind(*values, **primitive.get_bind_params(params))
            results = results if primitive.multiple_results else [results]
        known.update(zip(equation.outvars, results, strict=True))
    return [value(of) for of in jaxpr.outvars]


def _resized(equation: Any, m: int, size: int) -> dict[str, Any]:
    """Change parameters that are shapes to fewer points."""
    axis = cast(int, axis_of(equation.outvars[0].aval.shape, m))
    names = ("shape", "new_sizes", "limit_indices", "slice_sizes")
    return {
        name: (*value[:axis], size, *value[axis + 1 :]) if name in names and value else value
        for name, value in equation.params.items()
    }
