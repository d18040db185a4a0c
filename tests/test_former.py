"""Former names: they work for two versions, and warn."""

import json
import os
import pickle
import re
import subprocess
import sys
import threading
import typing
import warnings
from pathlib import Path

import pytest

import jitney
from jitney._former import MOVED, REMOVED_IN
from tests._public import public_names

VERSIONS = (Path(__file__).parents[1] / "docs" / "versions.md").read_text()
NAMES = {f"jitney.{name}": f"jitney.{module}.{name}" for name, module in MOVED.items()}
CLASSES = {path: each for path, each in public_names().items() if isinstance(each, type)}
# A fresh process, in which no class is defined yet.
LOADS = """
import json, pickle, sys
import jitney
loaded = [pickle.loads(bytes.fromhex(text)) for text in json.load(sys.stdin)]
print(json.dumps([f"{each.__module__}.{each.__qualname__}" for each in loaded]))
"""


@pytest.mark.parametrize("name", sorted(MOVED))
def test_a_former_name_is_the_new_one_and_warns(name):
    """With both names, the version that removes it, and the line that uses it."""
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        former = getattr(jitney, name)
    assert former is public_names()[NAMES[f"jitney.{name}"]]
    (warning,) = caught
    assert str(warning.message) == (
        f"jitney.{name} is now {NAMES[f'jitney.{name}']}. The former name works until jitney"
        f" {REMOVED_IN}, which removes it (docs/versions.md)."
    )
    assert warning.filename == __file__


def test_every_line_that_uses_a_former_name_warns_once():
    """Nothing is made an attribute: an import, an access and an access again are three warnings,
    each at its line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from jitney import Way  # noqa: F401  # pyright: ignore

        first = jitney.Way  # pyright: ignore
        second = jitney.Way  # pyright: ignore
    assert first is second is jitney.types.Way
    assert [(each.filename, each.category) for each in caught] == [
        (__file__, DeprecationWarning)
    ] * 3
    lines = [each.lineno for each in caught]
    assert lines == [lines[0], lines[0] + 2, lines[0] + 3]
    assert "Way" not in vars(jitney)


def test_an_import_of_a_former_name_can_be_an_error():
    """Of the warning, not of the import."""
    with pytest.raises(DeprecationWarning, match=r"jitney\.types\.Way"):
        from jitney import Way  # noqa: F401  # pyright: ignore


def test_threads_that_use_a_former_name_each_get_it():
    """Eight of them, at once."""
    ready, values = threading.Barrier(8), []

    def ask():
        ready.wait()
        values.append(jitney.State)  # pyright: ignore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=ask) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert values == [jitney.states.State] * 8


def test_former_names_are_not_offered():
    """Neither by completion nor by a star."""
    assert not set(MOVED) & {*dir(jitney), *jitney.__all__}


def test_the_page_of_versions_has_each_name():
    """Former name and new name, and the version that removes it."""
    table = dict(re.findall(r"^\| `(jitney\.\w+)` \| `(jitney\.\w+\.\w+)` \|$", VERSIONS, re.M))
    assert table == NAMES
    assert f"are removed in {REMOVED_IN}." in VERSIONS


def test_former_names_are_gone_with_their_version():
    """The version that removes them has no such file."""
    assert _number(jitney.__version__) < _number(REMOVED_IN)


def _number(version):
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("path", sorted(CLASSES))
def test_a_class_says_where_it_is_imported_from(path):
    """In tracebacks, `help` and pickles; its annotations are resolved all the same."""
    home = (
        path
        if not path.endswith(("JitneyError", "JitneyWarning"))
        else f"jitney.errors.{path.rpartition('.')[2]}"
    )
    kind = CLASSES[path]
    assert f"{kind.__module__}.{kind.__qualname__}" == home
    assert not any(
        isinstance(hint, (str, typing.ForwardRef)) for hint in typing.get_type_hints(kind).values()
    )


@pytest.mark.rest
def test_pickles_of_classes_are_loaded_by_a_process_that_has_used_none():
    """Those of this version by the public module; those of earlier ones by the private module."""
    private = b"cjitney._report.strategy\nWay\n."
    pickles = [pickle.dumps(kind).hex() for kind in CLASSES.values()] + [private.hex()]
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        input=json.dumps(pickles),
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in CLASSES.values()]
    assert json.loads(done.stdout) == [*names, "jitney.types.Way"]


def test_a_pickle_by_a_former_name_is_loaded():
    """With the warning."""
    with pytest.warns(DeprecationWarning, match=r"jitney\.types\.Way"):
        assert pickle.loads(b"cjitney\nWay\n.") is jitney.types.Way


def test_modules_are_there_without_an_import_of_their_own():
    """As attributes, in a process that has imported jitney alone; JAX is not loaded for them."""
    script = (
        "import json, sys, jitney; jitney.types; jitney.errors; jitney.states; jitney.analysis;"
        "jitney.simulation; jitney.processes; print(json.dumps('jax' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) is False
