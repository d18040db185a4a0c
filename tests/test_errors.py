"""Exceptions and the one form of their messages."""

import pickle
import re
import traceback
from pathlib import Path

import pytest

import jitney
from jitney._errors import Where, sentence

PAGE = (Path(__file__).parents[1] / "docs" / "errors.md").read_text()
KINDS = [getattr(jitney, name) for name in jitney.__all__ if name.endswith(("Error", "Warning"))]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (jitney.OptionError, ValueError),
        (jitney.ContractError, TypeError),
        (jitney.TraceError, TypeError),
        (jitney.StaticError, TypeError),
        (jitney.BudgetError, MemoryError),
        (jitney.ExportError, ValueError),
        (jitney.DonationError, RuntimeError),
        (jitney.NonFiniteError, FloatingPointError),
    ],
)
def test_every_error_is_ours_and_the_builtin_that_code_catches(error, builtin):
    """`except TypeError` goes on working."""
    assert issubclass(error, jitney.JitneyError)
    assert issubclass(error, builtin)


def test_warnings_can_be_filtered():
    """By their own class, as user warnings."""
    assert issubclass(jitney.JitneyWarning, UserWarning)


def test_a_message_has_three_lines():
    """Where and what; the rule; the fix."""
    text = sentence(Where("residual", "fit.py", 12), "axis 'n' has two sizes.", "All must agree.", "pass equal sizes.")
    assert text == "residual() at fit.py:12: axis 'n' has two sizes.\nAll must agree.\nFix: pass equal sizes."


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
    assert len(KINDS) == len(set(codes)) == 19
    assert all(re.fullmatch(r"J1\d\d", code) for code in codes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_code_is_an_anchor_beside_its_exception(kind):
    """On the page of errors, once."""
    assert len(re.findall(rf"\[{kind.code}\]\(#{kind.code.lower()}\){{ #{kind.code.lower()} }}[ |,]+`{kind.__name__}`", PAGE)) == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if issubclass(kind, jitney.JitneyError)], ids=lambda kind: kind.__name__)
def test_a_traceback_ends_with_the_code_and_the_message_is_without(kind):
    """Also of an error that came from another process."""
    for error in (kind("one thing."), pickle.loads(pickle.dumps(kind("one thing.")))):
        assert str(error) == "one thing."
        printed = "".join(traceback.format_exception_only(error))
        assert printed.endswith(f"one thing.\n{kind.code}: docs/errors.md#{kind.code.lower()}\n")
