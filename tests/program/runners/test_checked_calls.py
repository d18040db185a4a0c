"""Calls of programs with run-time checks: what is raised, what stays as it was, and what keeps
Equinox's own path.
"""

import os
import subprocess
import sys
import threading

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
import pytest
from jaxtyping import Array, Float

from jitney import lazy_derivatives, no_compiles, optimize
from jitney._program.runners import checked_calls
from tests._arrays import array
from tests._checked import X, positive, total
from tests._patience import patience
from tests._tracing import count_traces


@pytest.fixture
def data_only(monkeypatch):
    """No program may go through Equinox."""

    def refused(*_):
        raise AssertionError("a program went through Equinox")

    monkeypatch.setattr(checked_calls, "translating", refused)


@pytest.fixture
def kept(monkeypatch):
    """The names of the programs that go through Equinox."""
    names = []
    made = checked_calls.translating
    monkeypatch.setattr(
        checked_calls,
        "translating",
        lambda body, jitted: names.append(body.core.name) or made(body, jitted),
    )
    return names


def mapped(x: Float[Array, ""]) -> Float[Array, ""]:
    return jnp.sqrt(eqx.error_if(x, x < 0, "must not be negative"))


CALLS = {
    "plain": lambda: optimize(positive),
    "vmap": lambda: optimize(vmap="n")(mapped),
    "pad": lambda: optimize(pad={"n": [16]})(positive),
    "chunk": lambda: optimize(chunk={"n": 4})(total),
    "remat": lambda: optimize(remat=True)(total).grad,
    "f64": lambda: optimize(precision="f64")(positive),
    "bf16": lambda: optimize(precision="bf16-all")(positive),
    "fast": lambda: optimize(compiler="fast")(positive),
    "donate": lambda: (lambda f: lambda x: f(x + 0))(optimize(donate="x")(positive)),
    "no cache": lambda: optimize(cache=False)(positive),
    "debug_nans": lambda: optimize(debug_nans=True)(positive),
    "verify": lambda: optimize(pad={"n": [16]}, verify=True)(positive),
    "grad": lambda: optimize(total).grad,
    "jacobian": lambda: optimize(positive).jacobian,
    "hessian": lambda: optimize(total).hessian,
    "hvp": lambda: (lambda f: lambda x: f(x, tangents={"x": x}))(optimize(total).hvp),
    "lazy_derivatives": lambda: lazy_derivatives(total).value_and_grad,
}


@pytest.mark.core(
    "plain",
    "vmap",
    "chunk",
    "verify",
    "remat",
    "donate",
    "no cache",
    "grad",
    "lazy_derivatives",
    "fast",
    "debug_nans",
)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("data_only")
def test_a_failed_check_raises_whatever_stands_around_it(name):
    """A call that fails, one that does not, and one that fails again."""
    f = CALLS[name]()
    for _ in range(2):
        with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
            f(-X)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(f(X)))


def ode(rate, y):
    term = diffrax.ODETerm(lambda t, y, rate: -rate * y)
    steps = diffrax.PIDController(rtol=1e-4, atol=1e-6)
    return diffrax.diffeqsolve(
        term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y, args=rate, stepsize_controller=steps, max_steps=64
    ).ys


def fit(y, target):
    return optx.least_squares(
        lambda y, t: jnp.stack([t * (y[1] - y[0] ** 2), 1 - y[0]]),
        optx.LevenbergMarquardt(1e-5, 1e-5),
        y,
        target,
        max_steps=40,
    ).value


def solved(matrix, b):
    operator = lx.MatrixLinearOperator(matrix @ matrix.T + jnp.eye(3), lx.positive_semidefinite_tag)
    return lx.linear_solve(operator, b, lx.CG(1e-5, 1e-5, max_steps=20)).value


N = np.asarray(X)
M, B, MANY = (
    array(np.random.default_rng(0).normal(size=(3, 3))),
    array(N[:3]),
    array(np.outer(N, N[:3])),
)
INFINITE, ALL_INFINITE = array(N[:3] * np.inf), array(np.outer(N, N[:3] * np.inf))
SOLVERS = {
    "diffrax": (ode, (array(2.0), X), (array(np.nan), X), "maximum number of solver steps"),
    "optimistix": (fit, (array([-1.2, 1.0]), array(10.0)), (array([-1e9, 1e9]), array(1e9)), "."),
    "lineax": (solved, (M, B), (M, INFINITE), "non-finite"),
    "lineax, mapped": (jax.vmap(solved, (None, 0)), (M, MANY), (M, ALL_INFINITE), "non-finite"),
}


@pytest.mark.core("lineax")
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.usefixtures("data_only")
def test_solvers_of_others_have_their_numbers_and_errors(name):
    """To the bit those of `eqx.filter_jit`, and its message."""
    fn, good, bad, text = SOLVERS[name]
    f, theirs = optimize(lambda a, b: fn(a, b)), eqx.filter_jit(lambda a, b: fn(a, b))
    np.testing.assert_array_equal(f(*good), theirs(*good))
    with pytest.raises(eqx.EquinoxRuntimeError, match=text) as ours:
        f(*bad)
    with pytest.raises(eqx.EquinoxRuntimeError) as other:
        theirs(*bad)
    said, expected = (
        str(error.value).split("equinox.EquinoxRuntimeError: ")[1] for error in (ours, other)
    )
    assert said == expected


@pytest.mark.rest
@pytest.mark.usefixtures("data_only")
def test_the_gradient_of_an_ode_is_that_of_filter_jit():
    """To the bit, with the checks of its backward pass."""
    loss = lambda rate, y: jnp.sum(ode(rate, y) ** 2)
    rate = jnp.float32(2.0)
    np.testing.assert_array_equal(
        optimize(loss).grad(rate, X)["rate"], eqx.filter_jit(jax.grad(loss))(rate, X)
    )


@pytest.mark.core("jit", "filter_jit")
@pytest.mark.parametrize(
    "outer", [jax.jit, eqx.filter_jit, jax.grad, jax.vmap, jax.checkpoint], ids=lambda f: f.__name__
)
def test_under_an_outer_transform_the_check_is_equinoxs_own(outer):
    """It raises there too, and after calls that were made outside of one; arguments that are known
    included.
    """
    f = optimize(lambda x: eqx.error_if(x, jnp.any(x < 0), "must not be negative").sum())
    f(X)
    known = np.asarray(-X)
    for run in (lambda: outer(f)(-X), lambda: outer(lambda x: f(known) + x.sum())(X)):
        with pytest.raises(Exception, match="must not be negative"):
            jax.block_until_ready(run())


def test_of_two_threads_the_one_that_fails_raises():
    """The number belongs to the call."""
    f = optimize(positive)
    f(X)
    wrong = []

    def calls(x, fails):
        for _ in range(50):
            try:
                np.testing.assert_array_equal(f(x), expected)
                if fails:
                    wrong.append("not raised")
            except eqx.EquinoxRuntimeError as error:
                if not fails or "must not be negative" not in str(error):
                    wrong.append(error)

    expected = np.asarray(f(X))
    threads = [
        threading.Thread(target=calls, args=args)
        for args in ((X, False), (-X, True), (X, False), (-X, True))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_failed_call_takes_its_donated_buffers():
    """They went to the program, which ran; the next call has others."""
    f = optimize(donate="x")(lambda x: eqx.error_if(x * 2, jnp.any(x > 90), "too big"))
    x = X * 100
    with pytest.raises(eqx.EquinoxRuntimeError, match="too big"):
        f(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(f(X + 0), 2 * np.asarray(X))


def test_one_trace_and_one_compile_and_a_failed_call_compiles_nothing():
    """The first call knows the program that it runs; the error is raised without another."""
    body = count_traces(lambda x: eqx.error_if(x, jnp.any(x < 0), "must not be negative") + 2)
    f = optimize(body, cache=False)
    f(X)
    negative = -X
    assert (body.traces, f.stats.compiles) == (1, 1)
    with no_compiles(), pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        f(negative)
    assert (body.traces, f.stats.compiles) == (1, 1)


def test_a_check_before_effects_in_order_keeps_its_callback(kept):
    """Nothing is told when it fails."""
    told = []

    @optimize
    def f(x):
        x = eqx.error_if(x, x < 0, "must not be negative")
        jax.debug.callback(lambda v: told.append(float(v)), x[0], ordered=True)
        return x

    f(X)
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        f(-X)
    jax.effects_barrier()
    assert (kept, told) == (["f"], [1.0])


SCRIPT = """
import equinox as eqx, jax.numpy as jnp, numpy as np
from jitney import optimize
f = optimize(lambda x: eqx.error_if(x * 2, jnp.any(x < 0), "must not be negative") + 1)
print(np.asarray(f(jnp.ones(2))), np.asarray(f(-jnp.ones(2))))
"""


ON_ERROR = {
    "nan": "[3. 3.] [nan nan]",
    "off": "[3. 3.] [-1. -1.]",
    "breakpoint": "[3. 3.] [nan nan]",
}


@pytest.mark.rest
@pytest.mark.parametrize("how", ON_ERROR)
def test_eqx_on_error_is_honoured(how):
    """What Equinox does under it, the program does."""
    env = {**os.environ, "EQX_ON_ERROR": how, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="c\n" * 4,
        text=True,
        capture_output=True,
        env=env,
        timeout=patience(120),
        check=True,
    )
    assert ON_ERROR[how] in done.stdout
    assert ("must not be negative" in done.stdout) == (how == "breakpoint")


@pytest.mark.parametrize("options", [{}, {"cache": False}], ids=str)
@pytest.mark.usefixtures("data_only")
def test_program_that_is_not_cached_runs_in_the_calling_thread(options):
    """JAX keeps no program that it runs there, so one that is cached runs in another thread."""
    f = optimize(**options)(positive)
    np.testing.assert_array_equal(f(X), jax.jit(positive)(X))
    (entry,) = f._core.entries.values()
    program = entry.checked_calls.lower(X).as_text()
    assert ("callback" in program) == bool(options)
    assert "callback" not in f.ahead((X,), {}).as_text()
    with pytest.raises(eqx.EquinoxRuntimeError, match="must not be negative"):
        f(-X)


def test_late_checks_wait_for_no_program():
    """They are for programs that run beside the host, cached or not."""
    f = optimize(cache=False, runtime_checks="later")(positive)
    np.testing.assert_array_equal(f(X), jax.jit(positive)(X))
    (entry,) = f._core.entries.values()
    assert "callback" not in entry.checked_calls.lower(X).as_text()
