"""Stacks in a part of an argument: some arrays go into one tuple or dict, of which `vmap` maps some
items by their paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Shaped

from jitney import optimize

from ._draw import TAKES
from ._options import Arrays, Option, Way, _chunk, _filled, _planned
from ._program import Program
from ._sizes import pick

Positions = Mapping[str, int | None]


def stacks(rng: Any, fn: Any, program: Program, n: int, **options: Any) -> Way | None:
    copies = int(pick(rng, (1, 2, 3, 5)))
    # of all arguments that a program may take, so that those of one case have one layout
    layout = {name: pick(rng, (0, 0, -1, None)) for name in TAKES}
    positions = {name: layout[name] for name, _ in program.takes}
    inside = [name for name in positions if name[0] in "xmwi"] or [next(iter(positions))]
    if all(at is None for at in positions.values()):
        return None
    # the items of a tuple have annotations with axes, which options act on
    form = "tuple" if options else str(pick(rng, ("tuple", "dict")))
    paths = _paths(rng, inside, positions, form)
    made = optimize(vmap={"b": paths}, **options)(_regrouped(fn, program, inside, form))
    theirs = jax.jit(jax.vmap(lambda arrays: fn(**arrays), in_axes=(positions,)))

    def given(arrays: Arrays) -> Arrays:
        tree = {name: arrays[name] for name in inside}
        rest = {name: x for name, x in arrays.items() if name not in inside}
        return {"tree": tuple(tree.values()) if form == "tuple" else tree, **rest}

    # Without another option nothing is refused.
    why = _filled(made) if "pad" in options else _planned(made) if options else _never
    text = "".join(f", {name}={value!r}" for name, value in options.items())
    return Way(
        lambda arrays: made(**given(arrays)),
        lambda arrays: theirs(dict(arrays)),
        f'optimize(vmap={{"b": {paths!r}}}{text}) of f with a {form} `tree` of {inside}',
        lambda arrays: why(given(arrays)),
        f"stacks {copies} {layout}",
        "close",
        partial(_stacked, positions=positions, copies=copies),
    )


def _never(arrays: Arrays) -> None:
    return None


def _paths(rng: Any, inside: list[str], positions: Positions, form: str) -> dict[str, int | None]:
    """Each item with its path, or the whole tree and its exceptions."""
    paths = {name: at for name, at in positions.items() if name not in inside and at is not None}
    items = {}
    for k, name in enumerate(inside):
        step = f"[{k}]" if form == "tuple" else str(pick(rng, (f".{name}", f"[{name!r}]")))
        items[f"tree{step}"] = positions[name]
    whole = pick(rng, (None, 0, -1))
    if whole is None or rng.random() < 0.5:
        return {**paths, **{path: at for path, at in items.items() if at is not None}}
    return {**paths, "tree": whole, **{path: at for path, at in items.items() if at != whole}}


def _regrouped(fn: Any, program: Program, inside: list[str], form: str) -> Any:
    """The function with some of its arguments in one tree."""
    hints = {name: f'Shaped[Array, "{axes}"]' for name, axes in program.takes}
    tree = f": tuple[{', '.join(hints[name] for name in inside)}]" if form == "tuple" else ""
    rest = "".join(f", {name}: {hint}" for name, hint in hints.items() if name not in inside)
    items = [
        f"{name}=tree[{k if form == 'tuple' else repr(name)}]" for k, name in enumerate(inside)
    ]
    items += [f"{name}={name}" for name in hints if name not in inside]
    namespace = {"f": fn, "Array": Array, "Shaped": Shaped}
    exec(f"def g(tree{tree}{rest}):\n    return f({', '.join(items)})\n", namespace)
    return namespace["g"]


def _stacked(arrays: Arrays, positions: Positions, copies: int) -> Arrays:
    """Those that have the axis several times, the others turned, so that no two are the same."""
    made = dict(arrays)
    for name, x in arrays.items():
        at = positions.get(name)
        if at is not None:
            made[name] = np.stack([np.roll(x, k) for k in range(copies)], axis=at)
    return made


def stacks_pad(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    return stacks(rng, fn, program, n, pad={str(pick(rng, "nb")): "pow2"})


def stacks_chunk(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    # One element at a time is no `jax.vmap`: a mapped convolution spreads infinities.
    size = {"n": _chunk(rng, n)} if rng.random() < 0.6 else {"b": int(pick(rng, (2, 3)))}
    return stacks(rng, fn, program, n, chunk=size)


OPTIONS: dict[str, Option] = {
    "stacks": Option(stacks, 0.7),
    "stacks+pad": Option(stacks_pad, 0.7),
    "stacks+chunk": Option(stacks_chunk, 0.7),
}
