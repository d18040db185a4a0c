"""Fingerprints of functions with a derivative rule of their own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import jax
import numpy as np

from ..trees import issubdtype
from ..typed import AnyJaxpr, JaxprEqn
from .jaxprs import equations, programs, rebind


def fingerprint(eqn: JaxprEqn) -> tuple[Hashable, ...] | None:
    """Fingerprint of a function with a custom derivative rule, such as `jax.nn.relu`.

    It is the text of the jaxprs of the function and of its first two derivatives. None if these
    do not determine the function, or if a rule cannot be traced: it may refuse, or have no
    second derivative. JAX wraps a rule anew wherever it stands, so identity would distinguish
    equal rules.
    """
    if eqn.primitive.name not in ("custom_jvp_call", "custom_vjp_call"):
        return None
    operands = [atom.aval for atom in eqn.invars]
    avals = tuple(
        jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in operands if hasattr(aval, "shape")
    )
    if not all(issubdtype(aval.dtype, np.inexact) for aval in avals):
        return None
    try:
        derived = _derivative_jaxpr(eqn, avals)
    except Exception:  # noqa: BLE001 - code of the user's, which has its own errors, and may never be differentiated
        return None

    # The function itself runs where nothing is differentiated, and the derivatives do not
    # contain it.
    traced = [derived, *programs(eqn.params)]
    for program in traced:
        for inner in (program, *_sub_jaxprs(program)):
            if getattr(inner, "consts", ()):
                return None
    texts = tuple(map(str, traced))
    # The text of a jaxpr shows neither its constants nor the rule of a `custom_vjp` inside it.
    if any("custom_vjp" in text for text in texts):
        return None
    return ("rule", *texts)


def _derivative_jaxpr(eqn: JaxprEqn, avals: Sequence[object]) -> object:
    """Jaxpr of the first two derivatives."""

    def function(*given: jax.Array) -> list[jax.Array]:
        return rebind(eqn, given)

    def pushed(values: object, tangents: object) -> object:
        return jax.jvp(function, values, tangents)

    def pushed_twice(values: object, tangents: object) -> object:
        return jax.jvp(pushed, (values, tangents), (tangents, values))

    def pulled(values: Sequence[jax.Array]) -> object:
        out, pull = jax.vjp(function, *values)
        return out, pull(out)

    def pulled_twice(values: object) -> object:
        out, pull = jax.vjp(pulled, values)
        return out, pull(out)

    forward = eqn.primitive.name == "custom_jvp_call"
    if forward:
        return jax.make_jaxpr(pushed_twice)(avals, avals)
    return jax.make_jaxpr(pulled_twice)(avals)


def _sub_jaxprs(program: object) -> Iterator[AnyJaxpr]:
    """Sub-jaxprs of a program, at any depth."""
    for eqn in equations(program):
        yield from programs(eqn.params)
