"""Numbers of Python beside the arguments of a program, in a frozen dataclass that JAX has no tree
for: data where the body computes with them, and held where it looks at them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jitney import optimize

from ._options import Arrays, Option, Way
from ._program import Program
from ._sizes import pick

# Powers of two, so that no product is rounded, and a multiplication may be fused or not.
_NUMBERS = (0.5, 2.0, -4.0, 1.0, -0.25)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Numbers that a body computes with."""

    scale: float
    shift: float
    times: int = 1


@dataclasses.dataclass(frozen=True)
class Derived(Settings):
    """The same, with a number that is computed from another one."""

    double: float = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "double", 2 * self.scale)


@dataclasses.dataclass(frozen=True)
class Nested:
    """Numbers within numbers."""

    inner: Settings
    rate: float


def _plain_use(settings: Settings, leaf: Any) -> Any:
    return leaf * settings.scale + settings.shift


def _derived_use(settings: Any, leaf: Any) -> Any:
    return leaf * settings.double - settings.shift


def _looking_use(settings: Settings, leaf: Any) -> Any:
    return leaf * settings.scale if settings.shift > 0 else leaf * settings.times


def _nested_use(settings: Any, leaf: Any) -> Any:
    return leaf * settings.rate + settings.inner.shift * settings.inner.times


USES: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any]]] = {
    "plain": (Settings, _plain_use),
    "derived": (Derived, _derived_use),
    "looking": (Settings, _looking_use),
    "nested": (lambda *numbers: Nested(Settings(*numbers), numbers[0]), _nested_use),
}


def settings(
    rng: Any,
    fn: Callable[..., Any],
    program: Program,
    n: int,
) -> Way:
    """Call with numbers, then with others."""
    kind = str(pick(rng, tuple(USES)))
    make, use = USES[kind]
    times = int(rng.integers(1, 4))
    first, second = ((pick(rng, _NUMBERS), pick(rng, _NUMBERS), times) for _ in "ab")

    def body(given: Any, /, **arrays: Any) -> Any:
        def used(leaf: Any) -> Any:
            return use(given, leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf

        return jax.tree.map(used, fn(**arrays))

    made = optimize(body)

    def ours(arrays: Arrays) -> Any:
        made(make(*first), **arrays)
        return made(make(*second), **arrays)

    # A trace in which the numbers are what they are.
    alone = jax.jit(lambda arrays: body(make(*second), **arrays))

    return Way(
        ours,
        alone,
        f"optimize(f, with {kind} numbers {first} and {second})",
        reference=f"settings {kind} {first} {second}",
    )


SETTINGS = {"settings": Option(settings, 0.7)}
