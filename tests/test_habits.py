"""What one does at a prompt: look at an object, complete a name, ask for help, read a table in a
narrow terminal.
"""

import inspect
import io
import pydoc
import re
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from tests._arrays import array
from tests._public import MODULES, public_names

PAGES = (Path(__file__).parents[1] / "docs" / "api").glob("*.md")
API = "\n".join(page.read_text() for page in PAGES)


@jitney.optimize(pad={"n": "pow2"})
def total(x: Float[Array, "n"], power: int = 2) -> Float[Array, ""]:
    """Sum of powers."""
    return jnp.sum(x**power)


def plain_sum(x: Float[Array, "n"]) -> Float[Array, ""]:
    """Without options."""
    return jnp.sum(x)


X = array(np.ones(3))
TOOLS = (
    "axes",
    "communication",
    "frontier",
    "measure",
    "precision_report",
    "simulate",
    "strategy",
    "stream",
)
# what makes another function of one
MAKERS = {"accumulate", "lazy_derivatives", "optimize", "scan_steps", "shared"}


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watch_from_a_terminal(monkeypatch):
    """Of 80 columns, which could show colours. Not a fixture: pytest sets `sys.stdout` anew for the
    test itself.
    """
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_completion_offers_every_public_name():
    """Of the package, although names are imported when they are first asked for; and nothing that
    is none.
    """
    documented = set(re.findall(r"^::: (\S+)$", API, flags=re.MULTILINE))
    offered = {
        f"{module.__name__}.{name}"
        for module in (jitney, *MODULES)
        for name in dir(module)
        if not name.startswith("_")
    }
    # An error that two modules offer has one place on the page.
    twice = {"jitney.errors.JitneyError", "jitney.errors.JitneyWarning"}
    modules = {module.__name__ for module in MODULES}
    assert offered - twice - modules == documented


def test_completion_offers_what_one_asks_of_a_program():
    """The methods that are documented, and none that jitney's own modules call."""
    documented = set(re.search(r"::: jitney\.Program\n.*\n +members: \[(.*)\]", API)[1].split(", "))
    assert {name for name in dir(total) if not name.startswith("_")} == documented


def test_what_is_asked_of_a_function_is_a_method_of_it():
    """Each public function whose first argument is a function is found on it too, but for those
    that make another function of it.
    """

    def takes_a_function(function):
        parameters = list(inspect.signature(function).parameters.values())
        return bool(parameters) and (
            "Program[" in str(parameters[0].annotation)
            or "Callable[" in str(parameters[0].annotation)
        )

    offered = public_names(*(module for module in MODULES if module is not jitney.testing))
    functions = {
        path.rpartition(".")[2]: each for path, each in offered.items() if inspect.isfunction(each)
    }
    # whose first argument is a rule of a state
    asked = {name for name, each in functions.items() if takes_a_function(each)}
    asked -= MAKERS | {"derived"}
    assert asked == set(TOOLS)
    assert asked <= set(dir(total))
    assert asked <= set(dir(total.grad))


@pytest.mark.parametrize("value", [total, total.grad], ids=["program", "derivative"])
def test_completion_of_the_class_has_the_same_names(value):
    """IPython adds those of an object's class to those of the object."""
    of_class = {name for name in dir(type(value)) if not name.startswith("__")}
    assert of_class <= set(dir(value))
    assert {"plan", "stats", "stream"} <= of_class


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_as_a_method_takes_what_the_function_takes(name):
    """The same names, kinds and defaults behind the function itself; what they mean is described
    once, where its one line says.
    """
    (path,) = (path for path in public_names() if path.endswith(f".{name}"))
    method, function = (
        inspect.signature(getattr(total, name)),
        inspect.signature(public_names()[path]),
    )
    kept = [(p.name, p.kind, p.default) for p in list(function.parameters.values())[1:]]
    assert [(p.name, p.kind, p.default) for p in method.parameters.values()] == kept
    assert re.fullmatch(rf".+; see `{re.escape(path)}`\.", inspect.getdoc(getattr(total, name)))


@pytest.mark.core(
    "axes-args0-options0",
    "axes-args1-options1",
    "frontier-args2-options2",
    "precision_report-args3-options3",
)
@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("axes", (X,), {}),
        ("axes", (), {"sizes": {"n": 7}}),
        ("frontier", (X,), {}),
        ("precision_report", (X,), {}),
        ("strategy", (), {"sizes": {"n": 10**6}, "memory": "1MiB"}),
    ],
)
def test_a_tool_as_a_method_tells_what_the_function_tells(name, args, options):
    """Word for word, of a function and of its gradient."""
    for asked in (total, total.grad):
        assert str(getattr(asked, name)(*args, **options)) == str(
            getattr(jitney.analysis, name)(asked, *args, **options)
        )


def test_a_stream_as_a_method_is_that_of_the_function():
    """With the result, and what the run did."""
    exact = jitney.optimize(plain_sum)
    data = np.arange(10, dtype=np.float32)
    streamed = exact.stream(data, chunk={"n": 4}, progress=False)
    assert (float(streamed.result), streamed.stats.chunks) == (45.0, 3)
    gradient = exact.grad.stream(data, chunk={"n": 4}, progress=False)
    np.testing.assert_array_equal(gradient.result["x"], np.ones(10))


@pytest.mark.rest
def test_a_measurement_as_a_method_is_of_that_function():
    """Under its name, on the arguments that are given."""
    measured = total.measure(
        X, 3, against=lambda x, power: (x**power).sum(), seconds=1e-3, rounds=8
    )
    assert len(measured.of.seconds) >= 8
    assert measured.of.name.startswith("total")


@pytest.mark.rest
def test_a_simulation_as_a_method_is_of_that_function():
    """The bytes of its argument and of its result, on devices that are not there."""
    simulation = jitney.optimize(plain_sum).simulate(sizes={"n": 1024}, device="cpu")
    assert (simulation.arguments, simulation.results) == (4 * 1024, 4)


def test_a_method_asks_the_instance_it_is_bound_to():
    """A method of a class tells about itself with the object as its first argument, as a call has
    it.
    """

    class Model:
        power = 2

        @jitney.optimize(static="self")
        def energy(self, x: Float[Array, "n"]) -> Float[Array, ""]:
            return jnp.sum(x**self.power)

    assert "n: reduced" in str(Model().energy.axes(X))


def test_an_error_of_a_tool_shows_the_line_that_asked():
    """Not jitney's own: neither those of the tool nor that of the method."""
    with pytest.raises(jitney.errors.OptionError, match="not sharded") as caught:
        total.communication(X)
    assert [entry.path.name for entry in caught.traceback] == ["test_habits.py"]


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
        (lambda: jitney.analysis.axes(total, X)["n"], "<axis n: reduced"),
        (lambda: jitney.analysis.visualize(X), "who holds what"),
        (lambda: jitney.no_compiles(), "<jitney.no_compiles: not entered>"),
        (lambda: jitney.watch(), "0 traces"),
        (lambda: jitney.mesh(data=1), "<jitney mesh: data=1>"),
        (lambda: jitney.host(X), "<jitney.host: 1 array"),
    ],
)
def test_an_object_at_a_prompt_says_what_it_is(made, shown):
    """Without `print`, and without addresses in memory."""
    assert shown in repr(made())
    assert " object at 0x" not in repr(made())


def wordy(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.sort(x)) + jnp.max(jnp.cumsum(x))


@pytest.mark.parametrize(
    "made",
    [
        lambda: total.plan(X),
        lambda: total.stats,
        lambda: jitney.optimize(wordy).axes(X),
        lambda: jitney.devices(),
        lambda: jitney.analysis.visualize(X),
    ],
)
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


@pytest.mark.parametrize(
    "options",
    [
        {"donate": "x"},
        {"static": ("power", "k")},
        {"vmap": "row"},
        {"vmap": {"row": {"x": 1}, "column": {"x": 0}}},
        {"pad": {"n": "pow2"}},
        {"pad": {"n": [8, 64]}},
        {"chunk": {"n": 16}},
        {"precision": {"default": "bf16", "head": "f32"}},
        {"max_compiles": "raise:3"},
        {"shard": ("fsdp", {"n": "data"})},
        {"remat": "dots_saveable", "debug_nans": True},
    ],
    ids=str,
)
def test_a_program_shows_its_options_as_they_are_written(options):
    """One can paste them into a decorator."""

    def f(x: Float[Array, "n"], power: int = 2, k: int = 1) -> Float[Array, ""]:
        return jnp.sum(k * x**power)

    shown = repr(jitney.optimize(**options)(f))
    assert shown.endswith(f" {', '.join(f'{name}={value!r}' for name, value in options.items())}>")
