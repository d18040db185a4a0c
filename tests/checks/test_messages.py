"""What the error of a failed check says: the words and the stack that Equinox gives it under its
own `filter_jit`.
"""

import itertools
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from tests._arrays import array

X = array(np.arange(1.0, 5.0, dtype=np.float32))
tries = itertools.count()


def checked(x, said):
    return eqx.error_if(x, jnp.any(x > 0), said)


def called(x, said):
    return checked(x * 2, said) + 1


def looped(x, said):
    return jax.lax.while_loop(
        lambda s: s[1] < 3, lambda s: (checked(s[0], said), s[1] + 1), (x, 0)
    )[0]


def derived(x, said):
    return jax.grad(lambda x: (called(x, said) ** 2).sum())(x)


def in_order(x, said):
    jax.debug.callback(lambda: None, ordered=True)
    return called(x, said)


class Model(eqx.Module):
    """A module whose call checks."""

    weight: Float[Array, "n"]

    def __call__(self, x, said):
        return called(self.weight * x, said)


def message_of(made, *given):
    """The whole message of a call, whose check has words of its own: Equinox remembers the stack
    with them.
    """
    said = f"try {next(tries)}"
    with pytest.raises(eqx.EquinoxRuntimeError) as caught:
        made(*given, said)
    return str(caught.value).replace(said, "the check")


CASES = {
    "by itself": (called, X),
    "in a loop": (looped, X),
    "in a derivative": (derived, X),
    "kept as a callback": (in_order, X),
    "of a module": (Model(X), X),
}


@pytest.mark.core("by itself", "kept as a callback")
@pytest.mark.parametrize("name", CASES)
def test_the_message_is_that_of_filter_jit(name):
    """With the frames inside of the function, and no others."""
    fn, x = CASES[name]
    assert message_of(optimize(fn), x) == message_of(eqx.filter_jit(fn), x)


def test_a_program_that_another_one_calls_has_no_frames_in_between():
    """Those of both functions, one below the other, as of `filter_jit` within `filter_jit`."""

    def message(jit):
        inner = jit(called)
        return message_of(jit(lambda x, said: inner(x, said)), X)

    assert message(optimize) == message(eqx.filter_jit)


def test_a_check_that_is_found_later_says_the_same():
    """`jitney.wait` raises it."""

    def late(x, said):
        optimize(runtime_checks="later")(called)(x, said)
        jitney.wait()

    assert message_of(late, X) == message_of(eqx.filter_jit(called), X)


def test_a_loaded_program_shows_no_frames_of_jitney(tmp_path):
    """The stack of the body is not kept in a file."""

    @optimize
    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return called(x, "the check")

    f.export(tmp_path / "f.jitney", sizes={"n": 4})
    with pytest.raises(eqx.EquinoxRuntimeError, match="the check") as caught:
        jitney.load(tmp_path / "f.jitney")(X)
    assert "  File" not in str(caught.value)


def test_all_frames_are_kept_on_demand(monkeypatch):
    """`JITNEY_TRACEBACK=full`, as for tracebacks."""
    monkeypatch.setenv("JITNEY_TRACEBACK", "full")
    assert "_interface" in message_of(optimize(called), X)


@pytest.mark.rest
def test_the_end_of_python_prints_no_frames_of_jitney():
    """Neither those of the body's stack nor of what raises there."""
    script = """
import equinox as eqx, jax.numpy as jnp, jitney
jitney.optimize(runtime_checks="later")(lambda x: eqx.error_if(x, x > 0, "too much"))(jnp.ones(()))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 120
    assert "equinox.EquinoxRuntimeError: too much" in ended.stderr
    assert "jitney/_checks" not in ended.stderr
    assert "_interface" not in ended.stderr
