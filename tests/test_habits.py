"""What one does at a prompt: look at an object, complete a name, ask for help, read a table in a narrow terminal."""

import io
import pydoc
import re
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float

import jitney

API = (Path(__file__).parents[1] / "docs" / "api.md").read_text()


@jitney.optimize(pad={"n": "pow2"})
def total(x: Float[Array, "n"], power: int = 2) -> Float[Array, ""]:
    """Sum of powers."""
    return jnp.sum(x**power)


X = jnp.ones(3)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watch_from_a_terminal(monkeypatch):
    """Of 80 columns, which could show colours. Not a fixture: pytest sets `sys.stdout` anew for the test itself."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_completion_offers_every_public_name():
    """Of the package, although names are imported when they are first asked for; and nothing that is none."""
    documented = set(re.findall(r"^::: jitney\.(\w+)$", API, flags=re.MULTILINE))
    assert {name for name in dir(jitney) if not name.startswith("_")} - {"testing"} == documented


def test_completion_offers_what_one_asks_of_a_program():
    """The methods that are documented, and none that jitney's own modules call."""
    documented = set(re.search(r"::: jitney\.Program\n.*\n +members: \[(.*)\]", API)[1].split(", "))
    assert {name for name in dir(total) if not name.startswith("_")} == documented


def test_completion_of_a_lowered_program_offers_what_jax_has():
    """`as_text`, `cost_analysis` and their kin are looked up there."""
    assert {"as_text", "compile", "cost_analysis"} <= set(dir(total.lower(X)))


def test_help_of_a_program_is_that_of_its_function():
    """Signature and docstring."""
    text = pydoc.render_doc(total, renderer=pydoc.plaintext)
    assert "total(x:" in text
    assert "Sum of powers." in text


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda: total, "<jitney program total() at test_habits.py:"),
        (lambda: total.grad, "<grad of <jitney program total()"),
        (lambda: total.plan(X), "plan of total() at test_habits.py:"),
        (lambda: total.stats, "stats"),
        (lambda: total.lower(X), "<lowered program of total() at test_habits.py:"),
        (lambda: total.lower(X).compile(), "<compiled program of total() at test_habits.py:"),
        (lambda: jitney.axes(total, X)["n"], "<axis n: reduced"),
        (lambda: jitney.visualize(X), "who holds what"),
        (lambda: jitney.no_compiles(), "<jitney.no_compiles: not entered>"),
        (lambda: jitney.watch(), "0 traces"),
        (lambda: jitney.mesh(data=1), "<jitney mesh: data=1>"),
        (lambda: jitney.host(X), "<jitney.host: 1 arrays"),
    ],
)
def test_an_object_at_a_prompt_says_what_it_is(made, shown):
    """Without `print`, and without addresses in memory."""
    assert shown in repr(made())
    assert " object at 0x" not in repr(made())


@pytest.mark.parametrize("made", [lambda: total.plan(X), lambda: total.stats, lambda: jitney.devices(), lambda: jitney.visualize(X)])
def test_a_table_fits_a_terminal_of_80_columns(made, monkeypatch):
    """No line is cut or folded by the terminal itself."""
    watch_from_a_terminal(monkeypatch)
    plain = re.sub(r"\x1b\[[\d;]*m", "", str(made()))
    assert max(map(len, plain.splitlines())) <= 80


def test_a_terminal_shows_colours_unless_it_shall_not(monkeypatch):
    """`NO_COLOR`, whatever its value."""
    watch_from_a_terminal(monkeypatch)
    assert "\x1b[" in str(total.plan(X))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in str(total.plan(X))
