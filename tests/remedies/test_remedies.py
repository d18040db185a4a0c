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
from ._exports import CASES as EXPORTS
from ._files import CASES as FILES
from ._issue import CASES as ISSUE
from ._meshes import CASES as MESHES
from ._more import CASES as MORE
from ._numerics import CASES as NUMERICS
from ._places import places
from ._rest import CASES as REST
from ._rows import CASES as ROWS
from ._running import CASES as RUNNING
from ._starting import CASES as STARTING
from ._streaming import CASES as STREAMING
from ._streams import CASES as STREAMS
from ._unfollowed import ELSEWHERE

CASES = [
    *ISSUE,
    *DECORATION,
    *CALLS,
    *RUNNING,
    *FILES,
    *EXPORTS,
    *STREAMS,
    *NUMERICS,
    *MORE,
    *REST,
    *ROWS,
    *COMMANDS,
    *STREAMING,
    *MESHES,
    *STARTING,
]


TOLD = [(case.at, case.words) for case in CASES] + [(at, words) for at, words, _ in ELSEWHERE]
WITH_A_REASON = 66


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


def is_followed(place):
    """Whether a table follows it here."""
    return any(covers(case.at, case.words, place) for case in CASES)


def test_every_remedy_of_the_source_is_followed_or_has_a_reason():
    """A new one is followed too: write a case beside its like, or name what stands against it."""
    without = [str(place) for place in places() if not any(covers(*entry, place) for entry in TOLD)]
    assert without == []


def test_every_entry_of_the_tables_is_in_the_source():
    """A message that has changed or gone takes its case with it; what is followed has no reason why
    it is not.
    """
    assert [entry for entry in TOLD if not any(covers(*entry, place) for place in places())] == []
    assert [
        (at, words)
        for at, words, _ in ELSEWHERE
        if all(is_followed(place) for place in places() if covers(at, words, place))
    ] == []
    assert [name for name, count in Counter(case.name for case in CASES).items() if count > 1] == []


def test_no_more_have_a_reason_than_had():
    """Whoever follows one takes its entry out, and mends this number."""
    assert sum(not is_followed(place) for place in places()) <= WITH_A_REASON
