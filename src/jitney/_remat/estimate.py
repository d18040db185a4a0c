"""Estimate of the memory and the operations of an option, from the jaxpr, before anything is
compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax

from .._jax.programs.evaluation import evaluate_jaxpr
from .._jax.programs.jaxprs import open_jaxpr, scan_parts
from .._jax.programs.ssa import FlatProgram, bytes_of
from .._jax.typed import Array, Aval, DType, JaxprEqn
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
            products = sum(layer.count * layer.products for layer in self.layers)
            return base + products if option.saved == "dots" else base
        # Between groups of recomputed layers their inputs are saved, and inside them what the
        # policy saves. Layers that are not recomputed save all of their residuals.
        left, total, at_once = option.layers, base, 0
        for layer in self.layers:
            recomputed = min(left, layer.count)
            left -= recomputed
            groups = -(-recomputed // option.group)
            inside = layer.products if option.saved == "dots" else 0
            total += groups * layer.enters
            total += recomputed * inside
            if option.rolled:
                total += 2 * recomputed * layer.own
            others = (layer.count - recomputed) * layer.kept
            total += others

            # The peak: residuals of one recomputed group. By then the backward pass has freed
            # those of the later layers.
            if recomputed:
                group = min(option.group, recomputed)
                again = group * (layer.kept - inside)
                at_once = max(at_once, again - others)
        return total + max(at_once, 0)

    def flops(self, option: Option) -> int:
        """Operations that are done a second time."""
        if option.whole:
            return sum(layer.count * layer.others for layer in self.layers)
        left, total = option.layers, 0
        for layer in self.layers:
            recomputed = min(left, layer.count)
            left -= recomputed
            each = layer.flops if option.saved == "nothing" else layer.others
            total += recomputed * each
        return total


def layers_of(flat: FlatProgram, stacks: Sequence[Stack]) -> tuple[Layer, ...]:
    """Describe the middle layer of each stack."""
    layers: list[Layer] = []
    for stack in stacks:
        layer = _iteration(flat, stack) if stack.turns else _segment(flat, stack)
        layers.append(layer)
    return tuple(layers)


def _segment(flat: FlatProgram, stack: Stack) -> Layer:
    middle = stack.count // 2
    start, stop = stack.bounds[middle : middle + 2]
    reads = flat.reads_of(start, stop)
    writes = flat.live_outputs(start, stop)
    steps = flat.steps[start:stop]

    def segment(*values: Array) -> list[Array]:
        env = dict(zip(reads, values, strict=True))
        for step in steps:
            results = step.run(env)
            env.update(zip(step.makes, results, strict=True))
        return [env[n] for n in writes]

    arguments = set(flat.takes)
    own = [n for n in reads if n in arguments]
    sizes = flat.sizes
    return _layer(
        stack.count,
        sum(sizes[n] for n in writes),
        segment,
        [flat.avals[n] for n in reads],
        [step.eqn for step in steps],
        own=sum(sizes[n] for n in own),
    )


def _iteration(flat: FlatProgram, stack: Stack) -> Layer:
    eqn = flat.steps[stack.start].eqn
    body, constants = open_jaxpr(eqn.params["jaxpr"])
    operands = [atom.aval for atom in eqn.invars]
    _, carry, _ = scan_parts(eqn, operands)

    def iteration(*values: Array) -> list[Array]:
        return evaluate_jaxpr(body, constants, values)

    return _layer(
        stack.count,
        sum(map(bytes_of, carry)),
        iteration,
        [atom.aval for atom in body.invars],
        body.eqns,
        own=0,
    )


def _layer(
    count: int,
    enters: int,
    fn: Callable[..., object],
    avals: Sequence[Aval],
    eqns: Sequence[JaxprEqn],
    own: int,
) -> Layer:
    total = sum(map(of_equation, eqns))
    products = sum(of_equation(eqn) for eqn in eqns if eqn.primitive.name == "dot_general")
    everything = residual_bytes(fn, avals)
    pure = not any(eqn.effects for eqn in eqns)
    return Layer(
        count,
        enters,
        kept=everything,
        products=residual_bytes(fn, avals, "dots") if pure else everything,
        flops=total,
        others=total - products,
        own=own,
    )


def residual_bytes(
    fn: Callable[..., object],
    avals: Sequence[Aval],
    saved: Saved = "everything",
) -> int:
    """Bytes that the backward pass of a function saves in addition to its arguments."""
    arguments = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    remat = fn if saved == "everything" else jax.checkpoint(fn, policy=policy_of(saved))

    def pull(*values: jax.Array) -> object:
        _, transposed = jax.vjp(remat, *values)
        return transposed

    # The leaves of a VJP function are its residuals. Those that have the form of an argument are
    # taken for it.
    pullback = jax.eval_shape(pull, *arguments)
    residuals = Counter(map(_form, jax.tree.leaves(pullback)))
    residuals -= Counter(map(_form, arguments))
    total = 0
    for form, count in residuals.items():
        total += count * bytes_of(jax.ShapeDtypeStruct(*form))
    return total


def _form(leaf: jax.ShapeDtypeStruct) -> tuple[tuple[int, ...], DType]:
    return leaf.shape, leaf.dtype
