"""`plan(...)` for people: text, colours on a terminal, HTML, and plain data."""

import builtins
import io
import json
import re
import sys
import types

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from rich.console import Console

import jitney
from jitney import JitneyWarning, optimize, stream
from jitney._command.arguments import main
from jitney._text import console
from jitney.errors import ContractError
from tests._arrays import array


class Model(eqx.Module):
    rate: Float[Array, ""]


@optimize(vmap="fit", remat="dots_saveable", donate="y")
def residual(
    model: Model, t: Float[Array, "points"], y: Float[Array, "points"], kind: str = "exp"
) -> Float[Array, "points"]:
    return model.rate * t - y


ARGS = (Model(array(1.0)), array(np.ones((8, 5))), array(np.ones((8, 5))))


def lines(report):
    return {d["name"]: (d["taken"], d["why"]) for d in report.to_dict()["decisions"]}


def test_data_says_everything():
    """Decisions, arguments with paths, static values, axes with sizes and who set them; it is
    JSON.
    """
    data = residual.plan(*ARGS).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["function"].startswith("residual() at test_plan_report.py:")
    assert [d["name"] for d in data["decisions"]] == [
        "fill",
        "place",
        "jit",
        "roll",
        "shard",
        "chunk",
        "vmap",
        "mask",
        "remat",
        "precision",
        "donation",
        "contract",
        "cache",
        "max_compiles",
        "trace errors",
        "verify",
        "late checks",
        "debug_nans",
    ]
    assert data["arguments"] == ["model.rate: float32[]", "t: float32[8,5]", "y: float32[8,5]"]
    assert data["static"] == ["kind = 'exp'"]
    assert data["axes"]["points"] == {"size": 5, "set_by": "'t'"}


def test_every_decision_has_its_reason():
    """Taken and not taken."""
    found = lines(residual.plan(*ARGS))
    assert found["jit"] == (True, "donates y")
    assert found["vmap"] == (True, "fit=8 over t, y; 1 array broadcast")
    assert found["remat"][0]
    assert "`dots_saveable`" in found["remat"][1]
    assert found["precision"] == (False, "no `precision` given")
    assert found["contract"][0]


def test_sizes_plan_as_they_compile():
    """The same arguments as `compile`."""
    assert (
        lines(residual.plan(ARGS[0], sizes={"points": 5, "fit": 8}))["vmap"]
        == lines(residual.plan(*ARGS))["vmap"]
    )


def test_options_off_say_so():
    """No check, no cache, eager, debug_nans."""
    f = optimize(contracts=False, cache=False, on_trace_error="eager", debug_nans=True)(
        residual.__wrapped__
    )
    found = lines(f.plan(*ARGS))
    assert found["contract"] == (False, "`contracts=False`")
    assert found["cache"] == (False, "`cache=False`: compiled again in every process")
    assert found["trace errors"] == (True, "the function runs un-jitted if it cannot be traced")
    assert found["debug_nans"][0]


def test_an_annotation_that_cannot_drive_a_decision_says_so():
    """A name that does not exist."""

    @optimize
    def f(x: "NoSuchType", y: Float[Array, "n"]):
        return y

    with pytest.warns(JitneyWarning, match="`NoSuchType` of 'x'"):
        plan = f.plan(1, jnp.ones(3))
    whys = [
        d["why"] for d in plan.to_dict()["decisions"] if d["name"] == "contract" and not d["taken"]
    ]
    assert any("'x' could not be resolved" in why for why in whys)


def test_text_is_plain_where_nobody_watches():
    """One line for each decision taken, one for all that nobody asked for, no escape codes."""
    text = str(residual.plan(*ARGS))
    assert "\x1b" not in text
    assert text.splitlines()[0].startswith("plan of residual() at test_plan_report.py:")
    assert "vmap      fit=8 over t, y; 1 array broadcast" in text
    assert "skipped:" not in text
    idle = (
        "fill, place, roll, shard, chunk, mask, precision, max_compiles, trace errors, verify, late"
        " checks, debug_nans"
    )
    assert f"not asked for: {idle}" in " ".join(text.split())
    assert "points = 5, set by 't'" in text


def test_what_was_asked_for_and_not_taken_stays_a_line():
    """With its reason."""

    @optimize(chunk={"n": 8})
    def f(x: Float[Array, "n"]) -> Float[Array, ""]:
        return x.sum()

    for n in (5, 8):
        assert re.search(f"chunk +skipped: n={n} is one chunk", str(f.plan(jnp.ones(n))))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_text_is_coloured_on_a_terminal(monkeypatch):
    """`print` shows it so."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert "\x1b[" in str(residual.plan(*ARGS))


def test_rich_prints_it():
    """As a table, in the width of the console."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="standard")
    console.print(residual.plan(*ARGS))
    text = console.file.getvalue()
    assert "\x1b[" in text
    assert "fit=8" in text


def test_html_is_for_notebooks():
    """With colours, and with what is in names and values escaped."""
    f = optimize(lambda x, tag: x)
    html = f.plan(jnp.ones(3), "<b>&")._repr_html_()
    assert html.startswith("<svg ")
    assert "<pre>" in html
    assert 'class="green"' in html
    assert "&lt;b&gt;&amp;" in html
    assert "<b>" not in html


@pytest.fixture
def displayed(monkeypatch):
    """A kernel of Jupyter, as rich recognises one; what is displayed by itself."""
    shown = []
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=shown.append))
    assert Console().is_jupyter
    return shown


def reports():
    """One of each kind of report: a picture beside a table, counts, figures, what was watched."""
    double, x = optimize(lambda x: 2 * x), jnp.ones(3)
    with jitney.watch() as watched:
        double(x)
    return [double.plan(x), double.stats, jitney.measure(double, x, seconds=0.01), watched]


@pytest.mark.core("html")
@pytest.mark.parametrize(
    "of", [str, repr, lambda report: report._repr_html_()], ids=["str", "repr", "html"]
)
def test_a_notebook_gets_reports_as_text(displayed, monkeypatch, of):
    """The text is the one outside of a notebook, and nothing is displayed beside it."""
    found = reports()
    shown = [of(report) for report in found]
    assert displayed == []
    monkeypatch.delattr(builtins, "get_ipython")
    assert shown == [of(report) for report in found]
    assert all(shown)


def test_commands_are_text_in_a_notebook(displayed, capsys):
    """Where a cell calls `main`, they print."""
    main(["doctor", "--no-measure"])
    assert "jax" in capsys.readouterr().out
    assert displayed == []


def test_a_notebook_has_a_bar_that_is_empty_in_the_end(displayed, monkeypatch):
    """One display that is replaced, without ipywidgets; a run that is done at once has none."""
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    updates = []

    def display(contents, *, raw, display_id):
        displayed.append(contents["text/plain"])
        update = lambda contents, *, raw: updates.append(contents)
        return types.SimpleNamespace(update=update)

    monkeypatch.setattr(sys.modules["IPython.display"], "display", display)
    monkeypatch.setattr(console, "_REDRAWN_AFTER", 0)

    @optimize
    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    stream(total, np.ones(24, np.float32), chunk={"n": 8})
    assert [text.partition(",")[0] for text in displayed] == ["total 1/3 chunks"]
    assert [each["text/plain"].partition(",")[0] for each in updates] == [
        "total 2/3 chunks",
        "total 3/3 chunks",
        "",
    ]
    assert '<progress value="3" max="3">' in updates[1]["text/html"]
    assert updates[-1]["text/html"] == ""

    displayed.clear()
    monkeypatch.setattr(console, "_REDRAWN_AFTER", 1e9)
    stream(total, np.ones(24, np.float32), chunk={"n": 8})
    assert displayed == []


def test_square_brackets_are_text():
    """Rich must not read them as its markup."""
    text = str(optimize(lambda tree: tree).plan({"red": [jnp.ones(3)]}))
    assert "tree['red'][0]: float32[3]" in text


def test_a_call_that_does_not_fit_has_no_plan():
    """The contract says why."""
    with pytest.raises(ContractError, match="'points'"):
        residual.plan(ARGS[0], jnp.ones((8, 5)), jnp.ones((8, 4)))


def test_planning_a_bad_donation_by_sizes():
    """Without any array, the line about a buffer that no result takes over is there."""

    @optimize(donate=("x", "y"))
    def total(x: Float[Array, "n"], y: Float[Array, "m"]) -> Float[Array, "n"]:
        return x * y.sum()

    found = lines(total.plan(sizes={"n": 3, "m": 4}))
    assert not found["donation"][0]
    assert "'y'" in found["donation"][1]
