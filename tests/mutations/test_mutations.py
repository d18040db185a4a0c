"""The core sees each mistake of the list, and the list fits the project."""

from pathlib import Path

import pytest

from tests.mutations._list import MUTATIONS
from tests.mutations._run import ROOT, copied, judged, run

every_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)


def test_what_is_changed_stands_there_once():
    """Else it would be another mistake than its name says, or none."""
    counts = {each.name: (ROOT / each.file).read_text().count(each.old) for each in MUTATIONS}
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_the_tests_of_a_mutation_are_there():
    """Each file, and each test in it; whether pytest knows the id of a case shows when it runs."""
    named = {test.partition("[")[0] for mutation in MUTATIONS for test in mutation.tests}
    for test in sorted(named):
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(), test


def test_the_core_has_a_case_of_each(request):
    """Of its tests; the whole core knows."""
    config = request.config
    is_whole = config.getoption("--core") and {*config.args} == {"tests", "examples"}
    if (
        not is_whole
        or config.getoption("--part")
        or config.option.keyword
        or config.option.markexpr
    ):
        pytest.skip("the whole core is asked")
    cases = {item.nodeid for item in request.session.items}
    known = (
        cases
        | {case.partition("[")[0] for case in cases}
        | {case.partition("::")[0] for case in cases}
    )
    lost = {each.name for each in MUTATIONS if not known.intersection(each.tests)}
    assert lost == set()


def test_no_two_mutations_share_a_name():
    """A name is what `-k` and `--all-core` take."""
    names = [mutation.name for mutation in MUTATIONS]
    assert sorted({*names}) == sorted(names)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project for all mutations, which are made and undone in it."""
    return copied(tmp_path_factory.mktemp("mutated"))


@pytest.mark.rest
def test_a_copy_passes_as_it_is(copy):
    """A mutation fails by its mistake, and by nothing that a copy lacks."""
    tests = dict.fromkeys(test for mutation in MUTATIONS[::10] for test in mutation.tests)
    seen = run(copy, [*tests])
    assert seen.verdict == "survived", seen.printed


@pytest.mark.sweep
@every_mutation
def test_the_core_sees_it(mutation, copy):
    """With the mistake, one of its tests fails."""
    seen = judged(mutation, copy)
    assert seen.verdict == "killed", seen.printed
