"""What pyright and mypy infer for decorated methods and modules; read by `nox -s types`, never run
(see functions.py).
"""

from typing import assert_type

import equinox as eqx
from jax import Array
from jaxtyping import Float

from jitney import Program, optimize


def half_life_of(rate: Float[Array, ""]) -> Float[Array, ""]:
    """Not decorated."""
    return 0.6931 / rate


class Line(eqx.Module):
    """A model without decorators."""

    slope: Float[Array, ""]

    def __call__(self, t: Float[Array, "n"]) -> Float[Array, "n"]:
        """Plain."""
        return self.slope * t


class Decay(eqx.Module):
    """A model with each kind of method."""

    rate: Float[Array, ""]

    @optimize
    def __call__(self, t: Float[Array, "n"]) -> Float[Array, "n"]:
        """Calling an instance is decorated."""
        return self.rate * t

    @optimize(vmap="batch")
    def residual(self, t: Float[Array, "n"], *, weight: float) -> Float[Array, "n"]:
        """Decorated with options."""
        return self(t) * weight

    @staticmethod
    @optimize
    def half_life(rate: Float[Array, ""]) -> Float[Array, ""]:
        """No instance."""
        return 0.6931 / rate

    @classmethod
    @optimize
    def from_half_life(cls, half_life: Float[Array, ""]) -> "Decay":
        """The class instead of an instance."""
        return cls(0.6931 / half_life)


def bound(model: Decay, t: Array) -> None:
    """An instance's method is a `Program` without `self`."""
    assert_type(model(t), Array)
    assert_type(model.residual(t, weight=1.0), Array)
    held: Program[[Array], Array] = model.__call__
    del held


def unbound(model: Decay, t: Array) -> None:
    """Through the class, `self` is the first parameter."""
    assert_type(Decay.residual(model, t, weight=1.0), Array)


def without_instance(t: Array) -> None:
    """A static method keeps its own parameters, through the class."""
    assert_type(Decay.half_life(t), Array)
    Decay.half_life("t")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def limits(model: Decay, t: Array) -> None:
    """Both checkers look through `staticmethod` and `classmethod` and bind what is inside like a
    method: right at run time, refused here.

    Should one of these comments become needless, a checker has learned it: move the line up.
    """
    model.half_life(t)  # type: ignore[call-arg]  # pyright: ignore[reportAttributeAccessIssue]
    Decay.from_half_life(t)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]


class Wrapped:
    """The forms that keep the types: wrap the program where the class body names it."""

    half_life = staticmethod(optimize(half_life_of))


def wrapped(t: Array) -> None:
    """A program inside `staticmethod(...)` is called alike through the class and an instance."""
    assert_type(Wrapped.half_life(t), Array)
    assert_type(Wrapped().half_life(t), Array)


def instances(model: Line, t: Array) -> None:
    """A module instance is decorated like the function that its `__call__` is."""
    fast = optimize(model)
    assert_type(fast(t), Array)
    fast("t")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def parameters(model: Decay, t: Array) -> None:
    """A method takes its own parameters and no others."""
    model("t")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    model.residual(t)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    model.residual(t, weight="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Decay.residual(t, weight=1.0)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
