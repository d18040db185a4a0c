"""What pyright and mypy infer for decorated functions.

Never run: `nox -s types` reads it. A line that must be an error carries one comment per checker,
and a comment that hides nothing is itself an error, so each check fails if the types get looser.
"""

import functools
from typing import Any, assert_type

from jax import Array
from jaxtyping import Float

from jitney import Bucket, Program, lazy_derivatives, optimize
from jitney.simulation import Simulation, Sweep
from jitney.types import (
    AxisFacts,
    Communication,
    Derivative,
    Frontier,
    Measurement,
    PrecisionReport,
    Strategy,
    Streamed,
    StreamStats,
)


@optimize
def scale(x: Float[Array, "n"], factor: float = 2.0, *, shift: float) -> Float[Array, "n"]:
    """Decorated bare."""
    return x * factor + shift


@optimize(vmap="batch", static="power")
def raise_to(x: Float[Array, "n"], power: int) -> tuple[Float[Array, "n"], str]:
    """Decorated with options."""
    return x**power, "done"


@optimize
def total(*parts: Float[Array, "n"], **weights: float) -> Float[Array, ""]:
    """Takes any number of arguments."""
    return sum((part.sum() for part in parts), start=parts[0].sum() * sum(weights.values()))


@lazy_derivatives
def energy(x: Float[Array, "n"]) -> Float[Array, ""]:
    """With derivatives, bare."""
    return x.sum()


@lazy_derivatives(wrt="x", mode="forward")
@optimize(static="power")
def powered(x: Float[Array, "n"], power: int) -> Float[Array, "n"]:
    """With derivatives, over a program."""
    return x**power


def plain(x: Float[Array, "n"], times: int) -> Float[Array, "n"]:
    """Not decorated."""
    return x * times


def results(x: Array) -> None:
    """A call has the type that the body returns."""
    assert_type(energy(x), Array)
    assert_type(powered(x, power=3), Array)
    gradient: Derivative[[Array], Any] = energy.grad
    del gradient
    assert_type(energy.value_and_grad(x), tuple[Array, Any])
    assert_type(energy.value_and_grad(x, wrt="x"), tuple[Array, Any])
    energy.grad(x, has_aux=True)
    assert_type(scale(x, shift=1.0), Array)
    assert_type(scale(x, 3.0, shift=1.0), Array)
    assert_type(raise_to(x, power=3), tuple[Array, str])
    assert_type(total(x, x, first=1.0), Array)
    assert_type(optimize(plain)(x, times=2), Array)
    assert_type(optimize(donate="x")(plain)(x, 2), Array)
    assert_type(optimize(lambda: 1)(), int)


def parameters(x: Array) -> None:
    """A call takes the parameters of the body and no others."""
    scale(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    scale("x", shift=1.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    scale(x, 3.0, 1.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    scale(x, shift=1.0, offset=2.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    raise_to(x, power="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    total(x, first="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    energy.grad("x")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    energy.grad(x, x)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    optimize(plain)(x, times="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_program_is_a_program() -> None:
    """What the decorator gives is a `Program` with the body's parameters and result."""
    held: Program[[Array, int], Array] = optimize(plain)
    other: Program[[Array, int], str] = optimize(plain)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    del held, other


def tools(x: Array) -> None:
    """What is asked of a program, or of a derivative, has the type that the function of that name
    gives.
    """
    facts: AxisFacts = energy.axes(x, sizes={"n": 3})["n"]
    assert_type(energy.communication(x), Communication)
    assert_type(energy.grad.frontier(x, wrt="x", memory="2GiB"), Frontier)
    assert_type(energy.measure(x, against=plain, seconds=0.1), Measurement)
    assert_type(energy.precision_report(x, tolerance=1e-3, low="bf16"), PrecisionReport)
    assert_type(energy.grad.simulate(x, device="h200", mesh={"data": 8}), Simulation)
    assert_type(energy.simulate(x, device="h200", mesh=[{"data": 8}, {"data": 16}]), Sweep)
    assert_type(energy.strategy(sizes={"n": 10}, memory="auto"), Strategy)
    assert_type(energy.stream(x, chunk={"n": 10}), Streamed[Array])
    assert_type(raise_to.stream(x=x, chunk="auto").result, tuple[Array, str])
    total, stats = energy.stream(x)
    assert_type(total, Array)
    assert_type(stats, StreamStats)
    energy.simulate(x)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    energy.stream(x, retries="two")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    energy.stream(x, chunk={"n": "all"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    del facts


def options() -> None:
    """Options are keywords, and their values have types."""
    optimize(vmap=1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    optimize(vmap={"member": {"model": 0, "model.table": None}})
    optimize(pad={"n": "pow3"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    optimize(pad={"n": "pow2", "m": [8, 16], "k": Bucket(multiple=8)}, precision="auto:1e-2")
    optimize(precision="bf17")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    optimize(precision={"head": "f32"})
    optimize(plain, "x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def partials(x: Array) -> None:
    """A partial keeps the parameters that it leaves open."""
    twice = optimize(functools.partial(plain, times=2))
    assert_type(twice(x), Array)
    assert_type(functools.partial(scale, x)(shift=1.0), Array)
