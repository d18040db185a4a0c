"""The core sees each mistake of the list, and the list is about what is there."""

from pathlib import Path

import pytest

from tests.mutations._list import MUTATIONS
from tests.mutations._run import ROOT, copied, judged, run

by_name = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)


@by_name
def test_what_is_changed_stands_there_once(mutation):
    """Else it would be another mistake than its name says, or none."""
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1


@by_name
def test_the_tests_of_a_mutation_are_there(mutation):
    """Each file, and each test in it; whether pytest takes the id of a case shows when it runs."""
    for test in mutation.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert not name or f"def {name.partition('[')[0]}(" in text, test


def test_no_two_mutations_share_a_name():
    """A name is what `-k` and `--all-core` take."""
    names = [mutation.name for mutation in MUTATIONS]
    assert sorted({*names}) == sorted(names)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy of the project for all mutations, which are made and undone in it."""
    return copied(tmp_path_factory.mktemp("mutated"))


@pytest.mark.rest
def test_a_copy_passes_as_it_is(copy):
    """So a mutation fails by its mistake, and by nothing that a copy lacks: the tests of every tenth mutation."""
    tests = dict.fromkeys(test for mutation in MUTATIONS[::10] for test in mutation.tests)
    seen = run(copy, [*tests])
    assert seen.verdict == "survived", seen.printed


@pytest.mark.rest
@by_name
def test_the_core_sees_it(mutation, copy):
    """With the mistake, one of its tests fails."""
    seen = judged(mutation, copy)
    assert seen.verdict == "killed", seen.printed
