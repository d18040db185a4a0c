"""Exceptions and the one form of their messages."""

import ast
import itertools
import pickle
import re
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._errors import Where, format_error

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "errors.md").read_text()
SOURCES = sorted((ROOT / "src" / "jitney").rglob("*.py"))
CODES = {
    code: section.split("\n")[0]
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)
    for code in re.findall(r"\[(J\d{3})\]\(#j\d{3}\){ #j\d{3} }", section)
}
KINDS = [getattr(jitney.errors, name) for name in jitney.errors.__all__]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (jitney.errors.OptionError, ValueError),
        (jitney.errors.ContractError, TypeError),
        (jitney.errors.TraceError, TypeError),
        (jitney.errors.StaticError, TypeError),
        (jitney.errors.BudgetError, MemoryError),
        (jitney.errors.ExportError, ValueError),
        (jitney.errors.DonationError, RuntimeError),
        (jitney.errors.NonFiniteError, FloatingPointError),
    ],
)
def test_every_error_is_ours_and_the_builtin_that_code_catches(error, builtin):
    """`except TypeError` goes on working."""
    assert issubclass(error, jitney.JitneyError)
    assert issubclass(error, builtin)


def _difference(x: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
    return x - y


def test_warnings_can_be_filtered():
    """By their own class, as user warnings."""
    assert issubclass(jitney.JitneyWarning, UserWarning)


def test_a_message_has_three_lines():
    """Where and what; the rule; the fix."""
    text = format_error(
        Where("residual", "fit.py", 12),
        "axis 'n' has two sizes.",
        "All must agree.",
        "pass equal sizes.",
    )
    assert (
        text == "residual() at fit.py:12: axis 'n' has two sizes.\nAll must agree.\nFix: pass equal"
        " sizes."
    )


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (Where("f", "a.py", 3), "f() at a.py:3"),
        (Where("sum"), "sum()"),
        (Where("optimize()"), "optimize()"),
    ],
)
def test_where_reads_as_a_call(where, text):
    """With file and line where there are any."""
    assert str(where) == text


def test_each_exception_has_a_code_of_its_own():
    """No two share one, and none has that of its base."""
    codes = [vars(kind)["code"] for kind in KINDS]
    assert len(KINDS) == len(set(codes)) == 33
    assert all(re.fullmatch(r"J1\d\d", code) for code in codes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_code_is_an_anchor_below_its_exception(kind):
    """On the page of errors, once."""
    assert CODES[kind.code] == kind.__name__


def test_the_page_of_errors_has_the_codes_that_are_raised_and_no_others():
    """Each below the exception that carries it: those of classes, and those of one cause among
    several.
    """
    raised = dict(itertools.chain.from_iterable(map(_codes_of, SOURCES)))
    assert raised == CODES


def _codes_of(source):
    """The codes in a file, each with the name of its exception."""
    text = source.read_text()
    if not re.search(r"J\d{3}", text):
        return  # most files have none, and are not parsed
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            name = node.name
            values = [
                statement.value
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == "code"
            ]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            name = {
                "fail": "OptionError",
                "Mismatch": "ContractError",
                "replace": "ContractError",
            }.get(called, called)
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"] + (
                node.args[3:4] if called == "Mismatch" else []
            )
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_CODES":
            name, values = "TraceError", node.value.values
        else:
            continue
        for value in values:
            if isinstance(value, ast.Constant) and re.fullmatch(r"J\d{3}", str(value.value)):
                yield value.value, "ContractError" if name == "Mismatch" else name


def test_one_cause_among_several_has_a_code_of_its_own():
    """Under the traceback, also of an error that came from another process; the class keeps that of
    the others.
    """
    with pytest.raises(jitney.errors.ContractError) as caught:
        jitney.optimize(_difference)(np.ones(3, np.float32), np.ones(4, np.float32))
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.code == "J210"
        assert "J210: docs/errors.md#j210" in error.__notes__
    assert jitney.errors.ContractError.code == "J102"


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if issubclass(kind, jitney.JitneyError)],
    ids=lambda kind: kind.__name__,
)
def test_a_traceback_ends_with_the_code_and_the_message_is_without(kind):
    """Also of an error that came from another process."""
    for error in (kind("one thing."), pickle.loads(pickle.dumps(kind("one thing.")))):
        assert str(error) == "one thing."
        printed = "".join(traceback.format_exception_only(error))
        assert printed.endswith(f"one thing.\n{kind.code}: docs/errors.md#{kind.code.lower()}\n")


def _shrinks(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.ones(20 - x.shape[0]))


def _decides_by_its_values(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x if x[0] > 0 else -x


def _updates(x: Float[Array, "n"], seen: dict[str, int]) -> Float[Array, "n"]:
    seen["calls"] = 1
    return 2 * x


def _doubled(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 2 * x


X = np.ones(3, np.float32)
CAUSES = {
    "PaddingWarning": lambda: jitney.optimize(pad={"n": [8]})(_shrinks)(X),
    "TransformWarning": lambda: jax.jit(jitney.optimize(pad={"n": [8]})(_doubled))(X),
    "EagerWarning": lambda: jitney.optimize(on_trace_error="eager")(_decides_by_its_values)(X),
    "RetraceWarning": lambda: list(map(jitney.optimize(max_compiles=1)(_doubled), (X, X[:2]))),
    "UpdateWarning": lambda: jitney.optimize(_updates)(X, {}),
    "PrecisionWarning": lambda: jitney.optimize(_doubled)(np.float64(1e9) + np.arange(3.0)),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_warning_is_of_the_class_of_its_cause(name):
    """So that it can be filtered alone."""
    with pytest.warns(jitney.JitneyWarning) as caught:
        CAUSES[name]()
    assert [type(each.message).__name__ for each in caught] == [name]
