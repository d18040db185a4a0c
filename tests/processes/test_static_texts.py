"""How processes write a static value to compare it."""

import dataclasses
from typing import Any

import pytest

from jitney._processes.compare_processes import _static

LONG = 10**5000  # Python shows ints of up to 4,300 digits, unless it is told otherwise


@dataclasses.dataclass(frozen=True)
class Record:
    n: Any


class Unshown:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "held",
    [lambda n: n, lambda n: [n], lambda n: {n}, lambda n: {"k": n}, Record],
    ids=["int", "list", "set", "dict", "record"],
)
def test_an_int_that_python_does_not_show_is_compared_as_others(held):
    """Equal ones are written alike in every process, others are not."""
    assert _static(held(LONG)) == _static(held(10**5000)) != _static(held(LONG + 1))


def test_what_cannot_be_shown_is_told_by_its_type():
    """The programs that are made of it are compared too."""
    assert _static(Unshown()) == _static(Unshown()) == "<Unshown>"
