"""JAX's own derivatives of padded functions whose slopes or factors are infinite: the
lines of `_infinite.py`, numbers with few infinities, zeros and NaNs among them, and all transforms.

An infinity that exact size multiplies by nothing must not meet a zero of the padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jitney import optimize

from ._options import Arrays, NotFloatingError, Option, Runner, Way
from ._program import Program
from ._sizes import pick

KINDS = (
    *("grad", "vjp", "jvp", "linearize", "linear_transpose"),
    *("jacfwd", "jacrev", "map of grad", "grad of map", "grad of half a map", "hvp", "hessian"),
)

SETS = 5  # sets of numbers that each program takes


def infinite(draw: int, arrays: Arrays) -> dict[str, Any]:
    """The arguments, most of them positive, with few special numbers: at the ends of the axis, and
    among the numbers that have no axis.
    """
    rng = np.random.default_rng(draw)
    is_positive = rng.random() < 0.7
    made = {name: np.array(x) for name, x in arrays.items()}
    floats = [name for name, x in made.items() if jnp.issubdtype(x.dtype, jnp.inexact)]
    for name in floats:
        x = made[name]
        tame = np.where(np.isfinite(x), x, np.ones_like(x))
        made[name] = (np.abs(tame) if is_positive else tame).astype(x.dtype)
    chosen = rng.permutation(floats)[: int(rng.integers(0, 3))]
    for name in chosen:
        value = pick(rng, (np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0))
        x = made[name]
        if x.size:
            at = tuple(int(rng.integers(3)) - 1 if size > 2 else -1 for size in x.shape)
            x[at] = value
    return made


def derivatives(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """One transform of JAX's of a padded function, of one argument or of all."""
    if len(program.gives) > 1:
        return None
    kind = str(pick(rng, KINDS))
    is_number = kind in (
        "grad",
        "map of grad",
        "grad of map",
        "grad of half a map",
        "hvp",
        "hessian",
    )
    of = _number(program, str(pick(rng, tuple(NUMBERS)))) if is_number else _arrays_of(program)
    body = of.compiled()
    cut = rng.random() < 0.15
    how = int(rng.integers(1, 4)) if cut else pick(rng, ("pow2", "pow2", [n + 2], [16], "aligned"))
    option = "chunk" if cut else "pad"
    padded = optimize(**{option: {"n": how}})(body)
    start, draw = int(rng.integers(8)), int(rng.integers(2**31))
    sets = range(draw, draw + SETS)

    def transformed(f: Any, arrays: Arrays) -> Any:
        names = [name for name, x in arrays.items() if jnp.issubdtype(x.dtype, jnp.inexact)]
        if not names:
            raise NotFloatingError
        names = names if start % 3 else [names[start % len(names)]]
        rest = {name: x for name, x in arrays.items() if name not in names}
        bound = lambda *at, rest=rest: f(**rest, **dict(zip(names, at, strict=True)))
        return _taken(kind, bound, [jnp.asarray(arrays[name]) for name in names])

    plain = jax.jit(body)  # the transforms outside of it, as they are of ours

    def batched(arrays: Arrays) -> Any:
        out = jax.jit(jax.vmap(lambda arrays: transformed(plain, arrays)))(
            {name: jnp.stack([x, x]) for name, x in arrays.items()}
        )
        return jax.tree.map(lambda x: x[0], out)

    def each(run: Runner) -> Runner:
        """Run with several sets of numbers, since most of the time is the compiler's."""
        return lambda arrays: [run(infinite(k, arrays)) for k in sets]

    return Way(
        each(lambda arrays: transformed(padded, arrays)),
        each(lambda arrays: transformed(plain, arrays)),
        f'{kind} by JAX of optimize({option}={{"n": {how!r}}})(f), numbers {draw}',
        reference=f"{kind} {start} {draw}",
        equal="close",
        shown=of,
        batched=each(batched),
    )


def _taken(kind: str, f: Callable[..., Any], at: list[Any]) -> Any:
    """Evaluate a transform of a function."""
    along = [
        jnp.cos(jnp.arange(x.size) + k).reshape(x.shape).astype(x.dtype) for k, x in enumerate(at)
    ]
    every = tuple(range(len(at)))
    grad = jax.grad(f, every)

    def ones(out: Any) -> Any:
        return jax.tree.map(lambda x: jnp.full(x.shape, 2, x.dtype), out)

    if kind == "grad":
        return grad(*at)
    if kind == "jvp":
        return jax.jvp(f, at, along)
    if kind == "vjp":
        out, back = jax.vjp(f, *at)
        return out, back(ones(out))
    if kind.startswith("linear"):
        out, linear = jax.linearize(f, *at)
        if kind == "linearize":
            return out, linear(*along)
        return jax.linear_transpose(linear, *at)(ones(out))
    if kind in ("jacfwd", "jacrev"):
        return getattr(jax, kind)(f, every)(*at)
    if kind == "hessian":
        return jax.hessian(f)(*at)
    if kind == "hvp":
        return jax.jvp(grad, at, along)[1]
    # each array, and the same ones turned
    two = [jnp.stack([x, jnp.flip(x)]) for x in at]
    if kind == "map of grad":
        return jax.vmap(grad)(*two)
    if kind == "grad of half a map":
        given = [*two[:1], *at[1:]]
        mapped = jax.vmap(f, (0, *[None] * (len(at) - 1)))
    else:
        given, mapped = two, jax.vmap(f)
    return jax.grad(lambda *at: jnp.sum(mapped(*at)), every)(*given)


_LEAVES = (
    "[leaf.real + 2 * leaf.imag if is_complex(leaf) else leaf for leaf in kept if is_inexact(leaf)]"
)
NUMBERS = {
    "sum": "sum(jnp.sum(leaf, dtype=jnp.float32) for leaf in flat)",
    "weighted": "sum(jnp.sum(leaf * jnp.cos(jnp.ones_like(leaf))) for leaf in flat)",
    "max": "sum(jnp.max(leaf) for leaf in flat)",
    "mean": "sum(jnp.mean(leaf) for leaf in flat)",
    "norm": "sum(jnp.sqrt(jnp.sum(leaf**2)) for leaf in flat)",
    "first": "sum(leaf[(0,) * leaf.ndim] for leaf in flat)",
}
"""Numbers made of arrays, by which infinities stay apart."""


def _number(program: Program, how: str) -> Program:
    made = _arrays_of(program)
    added = (("kept", "jax.tree.leaves(shaped)"), ("flat", _LEAVES), ("total", NUMBERS[how]))
    return Program(made.takes, (*made.lines, *added), ("total",), bare=True)


def _arrays_of(program: Program) -> Program:
    """All inexact results."""
    text = f"[leaf for leaf in jax.tree.leaves(({', '.join(program.gives)},)) if is_inexact(leaf)]"
    return Program(program.takes, (*program.lines, ("shaped", text)), ("shaped",), bare=True)


DERIVATIVES = {"derivatives": Option(derivatives, 1.0, together=False)}
