"""Derivatives along one direction, and as a linear function of directions."""

from __future__ import annotations

from inspect import Signature

import jax

from ..._axes import at_any_size
from ..._jax.programs.linearized import Linear, fitting
from ..._jax.trees import (
    tree_flatten,
    tree_unflatten,
)
from ..._jax.typed import Array
from ..._signature.binding import signature_of
from ..._signature.options import AUTO
from .arguments import COTANGENT, DerivedCall
from .decisions import note_decision


class Directional(DerivedCall):
    """`jvp`, `vjp`, `hvp` and `linearize` at one set of arguments."""

    def _jvp(self) -> object:
        note_decision("forward", "one direction: one forward pass")
        return jax.jvp(self._differentiable, (self.at,), (self._tangents(),))

    def _hvp(self) -> object:
        how = "one direction: one forward pass over the backward one"
        note_decision("forward over reverse", how)
        gradient = jax.grad(self._scalar)
        _, product = jax.jvp(gradient, (self.at,), (self._tangents(),))
        return self._by_name(product)

    def _vjp(self) -> object:
        how, budget = "one direction: one backward pass", self._budget
        if self.derived.remat == AUTO and budget is not None and not at_any_size():
            self._save_to_fit(self._differentiable, budget, how)
        else:
            note_decision("reverse", how)
        value, pull = jax.vjp(self._differentiable, self.at)
        # Rows and axes of `vmap` are found in a cotangent by the annotation of the result.
        is_annotated = signature_of(self.derived.fn).return_annotation is not Signature.empty
        cotangent = fitting(
            self.where,
            COTANGENT,
            self.directions[COTANGENT],
            value,
            fix=None if is_annotated else "annotate the result of the function, as its arguments.",
        )
        (product,) = pull(cotangent)
        return value, self._by_name(product)

    def _linearize(self) -> tuple[object, Linear]:
        how = "what the function computes is kept, and each direction is one forward pass"
        note_decision("forward", how)
        value, push = jax.linearize(self._differentiable, self.at)
        leaves, treedef = tree_flatten(self.at)

        def pushed(*flat: Array) -> list[Array]:
            return jax.tree.leaves(push(tree_unflatten(treedef, flat)))

        program = jax.make_jaxpr(pushed)(*leaves)
        out = jax.tree.structure(value)
        static = (self.where, self.names, self.derived.single, treedef, out)
        return value, Linear(program.consts, program.jaxpr, static)
