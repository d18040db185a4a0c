"""Error texts of a NaN or an infinity: which operation made it, from what, and what to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np

from jitney._errors import NonFiniteError, Where, format_error

from ..._jax.typed import JaxprEqn, NumPyArray
from .marked_values import INPUTS, Finding, Kind, MarkedValue, has_nonfinite, is_inexact

_FIXES: Final = {
    "log": "keep what it is taken of above 0",
    "log1p": "keep what it is taken of above -1",
    "sqrt": "keep what it is taken of at 0 or above; for a gradient, above 0",
    "rsqrt": "keep what it is taken of above 0",
    "div": (
        "keep the divisor away from 0; before a division that `jnp.where` masks, mask the"
        " divisor too"
    ),
    "exp": (
        "keep the exponent below the logarithm of the largest number of its dtype, or use a wider"
        " dtype"
    ),
    "pow": "keep the base at 0 or above, or the exponent an integer",
}
_ROOT: Final = (
    "a square root, as in a norm, has no derivative at 0: give it another number there, and mask"
    " its result, as jnp.where(s > 0, jnp.sqrt(jnp.where(s > 0, s, 1.0)), 0.0) with s ="
    " jnp.sum(x**2) for the norm of x"
)


def refuse_nonfinite(
    where: Where,
    results: object,
    unknown: str,
    fix: str,
) -> None:
    """Check results whose program cannot be interpreted.

    Args:
        where: The function.
        results: A pytree.
        unknown: Reason why the operation is unknown.
        fix: How to find it.

    Raises:
        NonFiniteError: A result has a NaN or an infinity.
    """
    if has_nonfinite(jax.tree.leaves(results)):
        rule = f"With debug_nans=True every result must be finite. {unknown}"
        raise NonFiniteError(
            where, "a result has a NaN or an infinity.", rule, f"{fix}; or drop debug_nans=True."
        )


def lanes_text(
    kind: Kind,
    axes: Sequence[str],
    results: Sequence[object],
) -> str:
    """Text on the lanes of mapped axes that have it, where these are the first axes of each result;
    empty if it cannot be determined.
    """
    bad: NumPyArray | None = None
    for result in results:
        numbers = (
            MarkedValue(result).bad(kind) if getattr(result, "is_fully_addressable", True) else None
        )
        if numbers is not None and numbers.ndim >= len(axes) > 0:
            # Lanes are the first axes: a lane is bad if any element of it is.
            here = numbers.reshape(*numbers.shape[: len(axes)], -1).any(-1)
            bad = here if bad is None or bad.shape != here.shape else bad | here
    if bad is None or not bad.any():
        return ""
    first = ", ".join(
        f"{name} = {i}" for name, i in zip(axes, np.argwhere(bad)[0].tolist(), strict=True)
    )
    return f"; {np.count_nonzero(bad)} of {bad.size} lanes have one, the first is {first}"


def message(
    finding: Finding,
    where: Where | str,
    arguments: Sequence[str] = (),
    lanes: str = "",
) -> str:
    """Error text of a finding.

    Args:
        finding: The finding.
        where: The function.
        arguments: Names of the flat arguments.
        lanes: Text on the lanes; see `lanes_text`.
    """
    rule = "With debug_nans=True every result must be finite."
    if finding.argument is not None:
        name = dict(enumerate(arguments)).get(finding.argument, str(finding.argument))
        fix = (
            "pass finite numbers; to find their origin, run the code that made them with"
            " debug_nans=True."
        )
        return format_error(
            where,
            f"argument {name} already has a {finding.kind}, {finding.inputs}{lanes}",
            rule,
            fix,
        )

    if finding.primitive == "program":
        what = (
            f"a result has a {finding.kind}, but no operation makes one when they run one at a"
            f" time{lanes}"
        )
        return format_error(
            where,
            what,
            rule,
            "look for rounding at the edge of overflow or of a domain; compiled programs round"
            " differently.",
        )
    if finding.primitive == "constant":
        what = (
            f"a {finding.kind} is written into the code at"
            f" {finding.source}{_inside(finding)}{lanes}"
        )
        return format_error(
            where, what, rule, "mark failure by a flag or a finite number, or drop debug_nans=True."
        )

    fix = f"{_advice(_maker(finding) or finding)}; or drop debug_nans=True if it is meant."
    return format_error(where, f"{_story(finding)}{lanes}", rule, fix)


def _story(finding: Finding) -> str:
    text = f"`{finding.primitive}` made the first {finding.kind} at {_place(finding)}"
    if maker := _maker(finding):
        text += f"; the infinity it was made of came from `{maker.primitive}` at {_place(maker)}"
    return text


def _maker(finding: Finding) -> Finding | None:
    """The operation that produced the infinity that a NaN came from."""
    return None if finding.cause is None or finding.cause.primitive in INPUTS else finding.cause


def _place(finding: Finding) -> str:
    element = f", element [{', '.join(map(str, finding.element))}]" if finding.element else ""
    return f"{finding.source}{_inside(finding)}{element}" + (
        f", from {finding.inputs}" if finding.inputs else ""
    )


def _inside(finding: Finding) -> str:
    return f", in {', '.join(finding.path)}" if finding.path else ""


def _advice(finding: Finding) -> str:
    if finding.advice:
        return finding.advice
    name = f"`{finding.primitive}`"
    fix = (
        f"scale the inputs of {name} down, or use a wider dtype"
        if finding.kind == "inf"
        else f"give {name} inputs it is defined for"
    )
    return _FIXES.get(finding.primitive, fix)


def special_advice(eqn: JaxprEqn, operands: Sequence[MarkedValue]) -> str:
    """Advice against an infinity that the operation alone does not imply.

    JAX differentiates `sqrt(x)` to 0.5 / sqrt(x), and 1 / x to a negative power.
    """
    name = eqn.primitive.name
    numbers = operands[0].numbers if operands else None
    if numbers is None:
        return ""
    if name == "div" and operands[1].made_by == "sqrt":
        is_half = numbers.ndim == 0 and float(np.real(numbers)) == 0.5
        return _ROOT if is_half else ""
    if name in ("integer_pow", "pow") and not numbers.all():
        return _FIXES["div"]
    return ""


def summary(values: Sequence[MarkedValue]) -> str:
    """Text on the first operands: dtype, shape, and the range of the finite elements."""
    texts = [_describe(value.data) for value in values if _is_number(value.data)]
    return " and ".join([*texts[:3], *(["more"] if len(texts) > 3 else [])])


def _describe(data: object) -> str:
    x = np.asarray(data)
    if x.ndim == 0 and not isinstance(data, jax.Array):
        # A literal of the code: its dtype follows from the other operand.
        return f"{x:.6g}"
    shape = f"{x.dtype}[{','.join(map(str, x.shape))}]"
    if x.size == 0 or not jnp.isdtype(x.dtype, ("integral", "real floating")):
        return shape
    finite = x[np.isfinite(x)]
    parts = [
        f"{np.count_nonzero(bad)} {kind}"
        for kind, bad in (("NaN", np.isnan(x)), ("inf", np.isinf(x)))
        if bad.any()
    ]
    if finite.size:
        low, high = float(finite.min()), float(finite.max())
        parts.insert(0, f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}")
    return f"{shape} ({', '.join(parts)})"


def _is_number(x: object) -> bool:
    return is_inexact(x) or (isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, np.integer))
