"""What `CONTRIBUTING.md` and `docs/architecture.md` say of the source is so: the recipes are
followed to the letter in a copy of it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RECIPES = (ROOT / "CONTRIBUTING.md").read_text()
MAP = (ROOT / "docs" / "architecture.md").read_text()
BLOCK = re.compile(
    r'^( *)```(python|diff) title="([^"]+)"\n(.*?)^ *```$', flags=re.MULTILINE | re.DOTALL
)
LAYERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][
    0
]["layers"]

TABLE = "src/jitney/_signature/options/table.py"
# An option that no stage carries out is written in one file.
MOTTO = """
     callbacks, a hundred of them at most.
     \"\"\"
+    motto: Literal["fast", "safe"]
+    \"\"\"The word that a plan begins with.\"\"\"
@@
         use="a bar of the chunks of a call that are done",
     )
+    motto: str = option(
+        default="fast",
+        read_as=choice("fast", "safe"),
+        says=lambda options: [("motto", options.motto != "fast", f"be {options.motto}")],
+        use="a word",
+    )
"""

# An operation that JAX does not have, so that only the recipe gives it a rule; and what each recipe
# should have brought about.
SCRIPT = """
import json, runpy
import jax, jax.numpy as jnp, numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxtyping import Array, Float
import jitney

sum_squares_p = Primitive("sum_squares")
squares = lambda x, *, axes: jnp.sum(x * x, axis=axes)
sum_squares_p.def_impl(squares)
sum_squares_p.def_abstract_eval(
    lambda x, *, axes: jax.core.ShapedArray(tuple(size for i, size in enumerate(x.shape) if i not in axes), x.dtype))
mlir.register_lowering(sum_squares_p, mlir.lower_fun(squares, multiple_results=False))

def double(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 2 * x

def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return sum_squares_p.bind(x, axes=(0,)) + 1

def lines(program):
    return {line["name"]: [line["taken"], line["why"]] for line in program.plan(x).to_dict()["decisions"]}

x = jnp.asarray(np.linspace(-3, 3, 7, dtype=np.float32))
limited, padded, cut = jitney.optimize(limit=4.0)(double), jitney.optimize(pad={"n": [8]})(total), jitney.optimize(chunk={"n": 3})(total)
try:
    jitney.optimize(limit=-1)(double)
except jitney.errors.OptionError as error:
    refused = str(error)
for test in runpy.run_path("tests/stages/test_limit.py").items():
    test[0].startswith("test_") and test[1]()
runpy.run_path("tests/option_texts.py", run_name="__main__")
fast, safe = jitney.optimize(double), jitney.optimize(motto="safe")(double)
try:
    jitney.optimize(motto="slow")
except jitney.errors.OptionError as error:
    slow = str(error)
print(json.dumps({
    "of": jitney.__file__, "refused": refused,
    "plan": lines(limited), "without": lines(jitney.optimize(double)),
    "limited": limited(x).tolist(), "doubled": jitney.optimize(double)(x).tolist(),
    "padded": float(padded(x)), "mask": lines(padded)["mask"],
    "cut": float(cut(x)), "passes": lines(cut)["passes"],
    "motto": [lines(fast)["motto"], lines(safe)["motto"]], "slow": slow, "repr": repr(safe),
    "shared": [safe.core is each.core for each in (fast, jitney.optimize(motto="safe")(double))],
    "plain": safe.options.plain.motto,
}))
"""


def blocks() -> Iterator[tuple[str, str, str]]:
    """Kind, file and text of every block of `CONTRIBUTING.md` that has a file as its title."""
    for indent, kind, file, text in BLOCK.findall(RECIPES):
        yield kind, file, "\n".join(line.removeprefix(indent) for line in text.splitlines()) + "\n"


def changed(text: str, file: str, diff: str) -> str:
    """The text of a file after the changes of a `diff` block."""
    for hunk in re.split(r"^@@$\n", diff, flags=re.MULTILINE):
        lines = [line or " " for line in hunk.splitlines()]
        old, new = (
            "\n" + "".join(f"{line[1:]}\n" for line in lines if line[0] in signs)
            for signs in (" -", " +")
        )
        assert old in text, f"CONTRIBUTING.md changes what {file} does not hold:{old}"
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a script finds in a copy of the source in which all recipes have been followed."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for kind, file, text in blocks():
        place = copy / file
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "diff":
            place.write_text(
                changed((place if place.exists() else ROOT / file).read_text(), file, text)
            )
        else:
            assert not (ROOT / file).exists()
            place.write_text(text)
    table = copy / TABLE
    table.write_text(changed(table.read_text(), TABLE, MOTTO.removeprefix("\n")))
    for file in ("tests/option_texts.py", "docs/options.md"):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "JITNEY_VERIFY": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=copy,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["of"]).is_relative_to(copy)
    decorator = copy / "src" / "jitney" / "_interface" / "optimize.py"
    return {**found, "page": (copy / "docs/options.md").read_text(), "help": decorator.read_text()}


def test_the_recipe_of_a_stage_brings_a_line_of_the_plan(followed: dict[str, Any]):
    """With its reason, whether it is taken or not."""
    assert followed["plan"]["limit"] == [True, "results from -4 to 4"]
    assert followed["without"]["limit"] == [False, "no `limit` given"]


def test_the_recipe_of_a_stage_changes_the_result(followed: dict[str, Any]):
    """That of a program which asks for it, and of no other."""
    assert followed["limited"] == [-4, -4, -2, 0, 2, 4, 4]
    assert followed["doubled"] == [-6, -4, -2, 0, 2, 4, 6]


def test_the_recipe_of_an_option_refuses_a_wrong_value(followed: dict[str, Any]):
    """In the three parts of an error: where and what, the rule, the fix."""
    first, rule, fix = followed["refused"].splitlines()
    assert first.endswith("limit=-1 is not a number above 0.")
    assert rule.startswith("`limit` is")
    assert fix == "Fix: write limit=100.0."


def test_an_option_of_one_file_is_read_and_refused(followed: dict[str, Any]):
    """By the reader that its line names, and shown as it is written."""
    assert "motto='slow' is not a choice." in followed["slow"]
    assert followed["repr"].endswith(" motto='safe'>")


def test_an_option_of_one_file_has_a_line_of_the_plan(followed: dict[str, Any]):
    """With what it is, given or not."""
    assert followed["motto"] == [[False, "be fast"], [True, "be safe"]]


def test_an_option_of_one_file_is_part_of_the_meaning(followed: dict[str, Any]):
    """Programs are shared by functions with the same value, and a plain run keeps it."""
    assert followed["shared"] == [False, True]
    assert followed["plain"] == "safe"


def test_an_option_of_one_file_comes_into_help_and_the_page(followed: dict[str, Any]):
    """Both are written from the table, by one command."""
    assert (
        "| [`motto`](options/motto.md){ #motto } | a word | the same to the bit |\n"
        in (followed["page"])
    )
    assert "        motto: The word that a plan begins with.\n" in followed["help"]
    assert "        limit: What floating-point results are kept" in followed["help"]


def test_the_recipe_of_a_rule_pads_and_cuts_the_operation(followed: dict[str, Any]):
    """9 + 4 + 1 + 0 + 1 + 4 + 9 and the one that is added, from a bucket of 8 and from chunks of
    3.
    """
    assert followed["mask"][0]
    assert followed["passes"][0]
    assert followed["padded"] == followed["cut"] == 29


def named(text: str) -> set[str]:
    """The files that a page names: as paths of the source or of the project."""
    return {
        span
        for span in re.findall(r"`([\w./-]+)`", text)
        if re.search(r"/|\.(py|md|toml)$", span) and not span.startswith("/")
    }


@pytest.mark.parametrize("page", [RECIPES, MAP], ids=["CONTRIBUTING.md", "architecture.md"])
def test_the_files_that_a_page_names_are_there(page: str):
    """A file that is moved takes its name in these pages along."""
    made = {file for _, file, _ in blocks()}
    assert [
        f
        for f in sorted(named(page) - made)
        if not any((at / f).exists() for at in (ROOT, ROOT / "src" / "jitney"))
    ] == []


@pytest.mark.parametrize("page", [RECIPES, MAP], ids=["CONTRIBUTING.md", "architecture.md"])
def test_what_a_page_points_to_in_a_file_is_defined(page: str):
    """Private functions and tables, and methods: `_name` and `Class.name`."""
    names = {span.rpartition(".")[2] for span in re.findall(r"`(_\w+|[A-Z][a-z]\w*\.\w+)`", page)}
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert [
        name
        for name in sorted(names)
        if not re.search(rf"(def|class) {name}\b|^{name}\b.*=", source, flags=re.MULTILINE)
    ] == []


def test_the_map_lists_the_folders_as_the_linter_orders_them():
    """The linter has the last folder first, and what stands on one line of it stands on one line of
    the map.
    """
    rows = re.findall(r"^\| (`(?:_|analysis)[^|]+) \|", MAP, flags=re.MULTILINE)
    assert [re.findall(r"`(\w+)(?:/|\.py)`", row) for row in rows] == [
        re.findall(r"\w+", layer) for layer in reversed(LAYERS)
    ]
