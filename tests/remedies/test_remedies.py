"""Each remedy that a message gives is followed to its end: the program with the fix applied runs,
and gives what the plain function gives.

`_places.py` finds in the source every place that says one. A place has a case in the tables, or a
reason in `_unfollowed.py`.
"""

import sys
import warnings
from collections import Counter

import jax
import numpy as np
import pytest

from tests._selection import params

from ._calls import CASES as CALLS
from ._commands import CASES as COMMANDS
from ._decoration import CASES as DECORATION
from ._files import CASES as FILES
from ._issue import CASES as ISSUE
from ._more import CASES as MORE
from ._places import places
from ._rest import CASES as REST
from ._running import CASES as RUNNING
from ._unfollowed import ELSEWHERE, NOT_YET

CASES = [*ISSUE, *DECORATION, *CALLS, *RUNNING, *FILES, *MORE, *REST, *COMMANDS]


FOLLOWED, WAITING = 359, 33


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # which commands extend
    yield
    sys.modules.pop("remedied", None)


@pytest.mark.parametrize("case", params(CASES, *(case.name for case in CASES if case.core)))
def test_a_remedy_is_said_and_helps(case):
    """The message ends with it, and what it says to write gives what the plain function gives,
    without a word.
    """
    said = case.said()
    assert any(map(case.is_said, said)), said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = case.follows()
    expected = case.expected() if callable(case.expected) else case.expected
    if expected is not None:
        assert jax.tree.structure(result) == jax.tree.structure(expected)
        for ours, plain in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(
                np.asarray(ours),
                plain,
                rtol=0,
                atol=case.within * max(1.0, np.abs(plain).max(initial=0)),
            )


def covers(at, words, place):
    """Whether an entry of a table is of a place; no words stand for all of its texts."""
    return (place.at == at or (not words and place.at.startswith(at))) and words in place.words


def test_every_remedy_of_the_source_is_followed_or_has_a_reason():
    """A new one is followed too: write a case beside its like, or name what stands against it."""
    told = [(case.at, case.words) for case in CASES] + [
        (at, words) for table in (ELSEWHERE, NOT_YET) for at, words, *_ in table
    ]
    without = [str(place) for place in places() if not any(covers(*entry, place) for entry in told)]
    assert without == []


def test_every_entry_of_the_tables_is_in_the_source():
    """A message that has changed or gone takes its case with it; what is followed is in no list of
    what is not.
    """
    told = [(case.at, case.words) for case in CASES] + [
        (at, words) for table in (ELSEWHERE, NOT_YET) for at, words, *_ in table
    ]
    assert [entry for entry in told if not any(covers(*entry, place) for place in places())] == []
    followed = {
        place for place in places() if any(covers(case.at, case.words, place) for case in CASES)
    }
    assert [
        entry
        for entry in NOT_YET
        if all(place in followed for place in places() if covers(*entry, place))
    ] == []
    assert [name for name, count in Counter(case.name for case in CASES).items() if count > 1] == []


def test_more_are_followed_and_fewer_wait():
    """Whoever follows one takes its entry out, and mends these numbers."""
    followed = sum(any(covers(case.at, case.words, place) for case in CASES) for place in places())
    waiting = sum(any(covers(*entry, place) for entry in NOT_YET) for place in places())
    assert followed >= FOLLOWED
    assert waiting <= WAITING
