"""The derivative of a function at a point, with stored residuals: a linear function of
directions.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..._errors import DerivativeError, Where
from ..stand_ins import partition
from ..trees import keystr, tree_flatten_with_path
from ..typed import Jaxpr
from .evaluation import evaluate_jaxpr


def fitting(
    where: Where,
    name: str,
    given: object,
    at: object,
    fix: str | None = None,
) -> Any:
    """Return a direction as checked arrays: with the structure, shapes and dtypes of `at`.

    Args:
        where: The function, for messages.
        name: Name of what it is a direction of.
        given: The direction.
        at: What it is a direction of.
        fix: What to do if it does not fit, if that is more than building it anew.

    Raises:
        DerivativeError: The direction has another structure, shape or dtype.
    """
    given = partition(given, eqx.is_inexact_array)[0]
    leaves, treedef = tree_flatten_with_path(at)
    if jax.tree.structure(given) != treedef:
        raise DerivativeError(
            where,
            f"the direction of {name!r} has another structure: {jax.tree.structure(given)}, not"
            f" {treedef}.",
            "A direction has the structure, shapes and dtypes of what it is a direction of.",
            fix or "build it with jax.tree.map.",
            code="J243",
        )
    for (path, leaf), direction in zip(leaves, jax.tree.leaves(given), strict=True):
        if direction.shape != leaf.shape or direction.dtype != leaf.dtype:
            raise DerivativeError(
                where,
                f"the direction of {name}{keystr(path)} is"
                f" {direction.dtype}{list(direction.shape)}, for {leaf.dtype}{list(leaf.shape)}.",
                "A direction has the structure, shapes and dtypes of what it is a direction of.",
                fix or "convert or reshape it.",
                code="J243",
            )
    return given


class Linear(eqx.Module):
    """The derivative of a function at a point, as a linear function of directions.

    Called with the direction of the one argument, or with a dict of directions by name, it returns
    the direction of the result. The residuals of the function are stored, so a call costs one
    forward pass of the linear part. It is a pytree and passes through `jax.jit` and `jax.vmap`.
    """

    _kept: list[Any]
    _program: Jaxpr = eqx.field(static=True)
    _form: tuple[Any, ...] = eqx.field(static=True)

    def draw(self, rng: np.random.Generator) -> Any:
        """Return a random direction in the form that a call takes."""
        _, names, single, treedef, _ = self._form
        at = treedef.unflatten(
            [
                jax.numpy.asarray(rng.normal(size=v.aval.shape), v.aval.dtype)
                for v in self._program.invars
            ]
        )
        return at[names[0]] if single else at

    def __call__(self, tangents: Any) -> Any:
        where, names, single, treedef, out = self._form
        given = {names[0]: tangents} if single else tangents
        if type(given) is not dict or set(given) != set(names):
            raise DerivativeError(
                where,
                "the directions are not given by name.",
                f"They are a dict with {', '.join(map(repr, names))}.",
                "write linear({...}), or take the derivative with respect to one argument.",
                code="J243",
            )
        ranks = [len(of.aval.shape) for of in self._program.constvars]
        given_ranks = [np.ndim(array) for array in self._kept]
        if given_ranks != ranks:
            raise DerivativeError(
                where,
                "the linear function has an axis of `vmap`, as the arguments of its call had.",
                "There is one linear function for each element of that axis.",
                "map it with its directions: jax.vmap(lambda linear, x: linear(x))(linear, xs).",
                code="J243",
            )
        at = jax.tree.unflatten(
            treedef,
            [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in self._program.invars],
        )
        given = partition(jax.tree.map(jax.numpy.asarray, given), eqx.is_inexact_array)[0]
        flat = jax.tree.leaves(fitting(where, "the arguments", given, at))
        return jax.tree.unflatten(out, _evaluate(self._program, self._kept, flat))


def _evaluate_flat(
    program: Jaxpr,
    kept: list[object],
    flat: list[object],
) -> list[Any]:
    return evaluate_jaxpr(program, kept, flat)


_evaluate: Any = jax.jit(_evaluate_flat, static_argnums=0)
