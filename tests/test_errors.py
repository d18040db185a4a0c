"""Exceptions and the one form of their messages."""

import pytest

import jitney
from jitney._errors import Where, sentence


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
