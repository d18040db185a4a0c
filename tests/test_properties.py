"""Each property of the tests has a table of examples: by default these alone are run
(`conftest.py`), and a property without is skipped.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    file.relative_to(ROOT).as_posix()
    for folder in ("tests", "examples")
    for file in (ROOT / folder).rglob("test_*.py")
)


def names(decorators: list[ast.expr]) -> set[str]:
    """The last name of each decorator: `given` of `@given(...)` and of `@hypothesis.given(...)`."""
    plain = [each.func if isinstance(each, ast.Call) else each for each in decorators]
    return {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in plain
        if isinstance(each, ast.Attribute | ast.Name)
    }


def without_examples(source: str) -> Iterator[str]:
    """The tests with `@given` that have neither an `@example` nor `@examples`, and are not marked
    slow.
    """
    tree = ast.parse(source)
    marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if any("pytest.mark.slow" in ast.unparse(mark) for mark in marks):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found = names(node.decorator_list)
            if "given" in found and not found & {"example", "examples", "slow"}:
                yield node.name


@pytest.mark.parametrize(
    ("decorators", "missing"),
    [
        ("@given(x=integers())", True),
        ("@hypothesis.given(x=integers())\n@settings(max_examples=3)", True),
        ("@pytest.mark.core\n@given(x=integers())", True),
        ("@given(x=integers())\n@example(x=1)", False),
        ("@hypothesis.example(x=1)\n@hypothesis.given(x=integers())", False),
        ("@given(x=integers())\n@examples({'x': 1})", False),
        ("@pytest.mark.slow\n@given(x=integers())", False),
        ("@pytest.mark.parametrize('x', [1])", False),
    ],
)
def test_a_property_without_examples_is_seen(decorators, missing):
    """Alone, in a class, and not in a file that is slow as a whole."""
    test = f"{decorators}\ndef test_it(x): ..."
    expected = ["test_it"] if missing else []
    assert list(without_examples(test)) == expected
    assert list(without_examples("class Tests:\n    " + test.replace("\n", "\n    "))) == expected
    assert list(without_examples(f"pytestmark = pytest.mark.slow\n{test}")) == []


@pytest.mark.rest
def test_each_property_has_a_table_of_examples():
    """Or is marked slow."""
    found = [
        f"{file}::{name}" for file in FILES for name in without_examples((ROOT / file).read_text())
    ]
    assert found == []
