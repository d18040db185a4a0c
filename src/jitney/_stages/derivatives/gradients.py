"""Gradients, and derivatives along directions, at one set of arguments.

A gradient is one backward pass, with residuals that fit into memory, and sums along an axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import Signature
from typing import Any

import equinox as eqx
import jax

from ... import _axes
from ..._axes import Refused, at_any_size, ranges_at_hand
from ..._host.own_time import OWN_TIME
from ..._jax.programs.jaxprs import open_jaxpr
from ..._jax.programs.linearized import Linear, fitting
from ..._jax.programs.primitives import public_name
from ..._jax.stand_ins import partition
from ..._jax.trees import (
    tree_flatten,
    tree_unflatten,
)
from ..._jax.typed import Array
from ..._signature.binding import signature_of
from ..._signature.options import AUTO
from ..remat import remat_to_fit
from .arguments import COTANGENT, Arguments, DerivedCall, recomputing
from .decisions import note_decision

_BACKWARD = "one scalar: one backward pass"


class Gradient(DerivedCall):
    """`grad` and `value_and_grad` at one set of arguments."""

    def _grad(self) -> object:
        if self.derived.aux:
            (_, aux), grad = self._value_aux_and_grad()
            return grad, aux
        self._recompute_to_fit()
        return self._by_name(jax.grad(self._scalar)(self.at))

    def _value_and_grad(self) -> object:
        if self.derived.summed:
            self._prove_sum()
        if self.derived.aux:
            return self._value_aux_and_grad()
        self._recompute_to_fit()
        value, grad = jax.value_and_grad(self._scalar)(self.at)
        return value, self._by_name(grad)

    def _value_aux_and_grad(self) -> tuple[tuple[jax.Array, object], object]:
        """Value, auxiliary result and gradient.

        Leaves of the auxiliary result that are not arrays bypass JAX and `jax.checkpoint`.
        """
        note_decision("reverse", _BACKWARD)
        rest: object = None

        def scalar(at: Arguments) -> tuple[jax.Array, object]:
            nonlocal rest
            value, auxiliary = self._two(self._once(at))
            aux, rest = partition(auxiliary, eqx.is_array)
            return self._real_number(value), aux

        recomputed = recomputing(scalar, self.derived.remat)
        with_gradient = jax.value_and_grad(recomputed, has_aux=True)
        (value, aux), grad = with_gradient(self.at)
        return (value, eqx.combine(aux, rest)), self._by_name(grad)

    @OWN_TIME.running()
    def _prove_sum(self) -> None:
        """Prove that the function is a sum along the axis of symbolic size.

        Raises:
            Refused: The function is not a sum; with the operation along the axis, and its line.
        """
        ranges = ranges_at_hand()
        arrays, rest = partition(self.bound.arguments, eqx.is_array)

        def whole(arrays: Arguments) -> object:
            out = self._call_with(eqx.combine(arrays, rest))
            return self._two(out)[0] if self.derived.aux else out

        program = jax.make_jaxpr(whole)(arrays)
        # A number of iterations is counted before any term is added up.
        counts = _axes.counts_iterations(program, ranges)
        if not counts:
            _refuse_other_uses(_axes.uses_of(open_jaxpr(program)[0], ranges))
        plans = [_axes.plan_passes(program, symbol, ranges) for symbol in ranges]
        if counts:
            _refuse_other_uses(use for passes in plans for use in passes.uses_after_counting)

        # One pass adds the terms up. A second one means that a term needs a statistic of the whole
        # axis.
        for passes in plans:
            if passes.levels > 1:
                raise Refused(
                    _axes.coupling_statistic(passes),
                    "makes a statistic of the whole of it, which the term of each element needs"
                    " before terms are added up: sums along it that wait for one another,"
                    f" {passes.levels} levels of them",
                )

    def _recompute_to_fit(self) -> None:
        """Recompute residuals that the budget has no room for, unless a `remat` policy decides
        already.
        """
        budget = self._budget
        auto = self.derived.remat == AUTO
        if budget is None or (self.derived.remat is not None and not auto) or at_any_size():
            note_decision("reverse", _BACKWARD)
            return
        if auto:
            self._save_to_fit(self._scalar, budget, _BACKWARD)
            return
        leaves, treedef = tree_flatten(self.at)

        def value(arrays: Sequence[Array]) -> jax.Array:
            return self._scalar(tree_unflatten(treedef, arrays))

        traced: Any = jax.make_jaxpr(value)(leaves)
        with OWN_TIME.running():
            choice = remat_to_fit(traced, leaves, budget)
        self._recompute(choice.fn)
        note_decision("reverse", f"{_BACKWARD}; {choice.why}")


def _refuse_other_uses(uses: Iterable[_axes.Use]) -> None:
    """Refuse the first use of an axis that is no sum along it."""
    for use in uses:
        if not use.is_sum:
            other = f"is not a sum along it: {use.kind}, {use.how} (`{public_name(use.op)}`)"
            raise Refused(use.place, use.refused or other)


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
