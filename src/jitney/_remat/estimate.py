"""Estimate of the memory and the operations of an option, from the jaxpr, before anything is
compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from .._jax.evaluation import applied
from .._jax.jaxprs import opened, scan_parts
from .flat import FlatProgram, bytes_of
from .flops import of_equation
from .layers import Stack
from .option import Option, Saved, policy_of


@dataclass(frozen=True)
class Layer:
    """Average layer of a stack.

    Args:
        count: Number of layers.
        enters: Bytes that one layer passes to the next.
        kept: Bytes of residuals if everything is saved.
        products: Bytes of residuals if matrix products are saved.
        flops: Operations that recompute it.
        others: Operations other than those of matrix products.
        own: Bytes of operands that differ between layers, such as weights: a loop copies them.
    """

    count: int
    enters: int
    kept: int
    products: int
    flops: int
    others: int
    own: int


@dataclass(frozen=True)
class Estimate:
    """Estimates for all options of a program, calibrated by what saving everything takes."""

    layers: tuple[Layer, ...]
    everything: int

    def bytes(self, option: Option) -> int:
        base = self.everything - sum(layer.count * layer.kept for layer in self.layers)
        if option.whole:
            return base + (
                sum(layer.count * layer.products for layer in self.layers)
                if option.saved == "dots"
                else 0
            )
        # Between groups of recomputed layers their inputs are saved, and inside them what the
        # policy saves. Layers that are not recomputed save all of their residuals.
        left, total, at_once = option.layers, base, 0
        for layer in self.layers:
            mine = min(left, layer.count)
            left -= mine
            inside = layer.products if option.saved == "dots" else 0
            total += (
                -(-mine // option.group) * layer.enters
                + mine * inside
                + (2 * mine * layer.own if option.rolled else 0)
            )
            total += (layer.count - mine) * layer.kept
            # The peak: residuals of one recomputed group. By then the backward pass has freed
            # those of the later layers.
            if mine:
                again = min(option.group, mine) * (layer.kept - inside)
                at_once = max(at_once, again - (layer.count - mine) * layer.kept)
        return total + max(at_once, 0)

    def flops(self, option: Option) -> int:
        """Operations that are done a second time."""
        if option.whole:
            return sum(layer.count * layer.others for layer in self.layers)
        left, total = option.layers, 0
        for layer in self.layers:
            mine = min(left, layer.count)
            left -= mine
            total += mine * (layer.flops if option.saved == "nothing" else layer.others)
        return total


def layers_of(flat: FlatProgram, stacks: Sequence[Stack]) -> tuple[Layer, ...]:
    """Describe the middle layer of each stack."""
    return tuple(_turn(flat, stack) if stack.turns else _segment(flat, stack) for stack in stacks)


def _segment(flat: FlatProgram, stack: Stack) -> Layer:
    middle = stack.count // 2
    start, stop = stack.bounds[middle], stack.bounds[middle + 1]
    reads, writes = flat.reads_of(start, stop), flat.needed_after(start, stop)
    steps = flat.steps[start:stop]

    def segment(*values: object) -> list[Any]:
        env = dict(zip(reads, values, strict=True))
        for step in steps:
            env.update(zip(step.makes, step.run(env), strict=True))
        return [env[n] for n in writes]

    takes = set(flat.takes)
    own = sum(flat.sizes[n] for n in reads if n in takes)
    return _layer(
        stack.count,
        sum(flat.sizes[n] for n in writes),
        segment,
        [flat.avals[n] for n in reads],
        [s.eqn for s in steps],
        own,
    )


def _turn(flat: FlatProgram, stack: Stack) -> Layer:
    eqn = flat.steps[stack.start].eqn
    body, constants = opened(eqn.params["jaxpr"])
    _, carry, _ = scan_parts(eqn, [atom.aval for atom in eqn.invars])
    avals = [atom.aval for atom in body.invars]

    def turn(*values: object) -> list[Any]:
        return applied(body, constants, values)

    return _layer(stack.count, sum(map(bytes_of, carry)), turn, avals, body.eqns, 0)


def _layer(
    count: int,
    enters: int,
    fn: Callable[..., object],
    avals: Sequence[Any],
    eqns: Sequence[Any],
    own: int,
) -> Layer:
    total = sum(map(of_equation, eqns))
    products = sum(of_equation(eqn) for eqn in eqns if eqn.primitive.name == "dot_general")
    kept = kept_by(fn, avals)
    pure = not any(eqn.effects for eqn in eqns)
    return Layer(
        count,
        enters,
        kept,
        kept_by(fn, avals, "dots") if pure else kept,
        total,
        total - products,
        own,
    )


def kept_by(fn: Callable[..., object], avals: Sequence[Any], saved: Saved = "everything") -> int:
    """Bytes that the backward pass of a function saves in addition to its arguments."""
    given = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    again = fn if saved == "everything" else jax.checkpoint(fn, policy=policy_of(saved))

    def pull(*values: jax.Array) -> Any:
        return jax.vjp(again, *values)[1]

    # The leaves of a VJP function are its residuals. Those that have the form of an argument are
    # taken for it.
    back = jax.eval_shape(pull, *given)
    kept = Counter((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(back))
    kept -= Counter((argument.shape, argument.dtype) for argument in given)
    return sum(bytes_of(jax.ShapeDtypeStruct(*form)) * count for form, count in kept.items())
