"""The code on the pages runs: each page's Python blocks, in order, as one script; and what a page
says that it prints, it prints.
"""

import builtins
import contextlib
import importlib.util
import io
import json
import logging
import re
import runpy
import symtable
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from jitney._signature.options import NAMES
from tests.perf import automation
from tests.perf import page as benchmarks

ROOT = Path(__file__).parents[1]
ALL = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
)
PAGES = [page for page in ALL if "```python\n" in page.read_text()]
ONE_SCRIPT = "The blocks of Python on this page are one script, from top to bottom."
SURE = [
    "quickstart",
    "contracts",
    "states",
    "axes",
    "memory",
    "train",
    "fits",
    "macro",
    "moving",
    "faq",
    "derivatives",
    "precision",
    "depth",
    "devices",
    "exporting",
    "inference",
    "warming-up",
    "simulate",
    "watching",
    "cluster",
]
OPTIONS = ROOT / "docs" / "options"
WITH = ROOT / "docs" / "with"
# The library that a page of `docs/with` is about, where its name is not the page's;
# `nox -s libraries` installs them.
LIBRARIES = {"pytorch-data": ("torch",), "sweeps": ("joblib", "distributed")}
PROBLEMS = ROOT / "docs" / "problems"
# all that these print is shown
WHOLE = (OPTIONS, PROBLEMS)
# the others show what depends on the machine
PRINTED = [page for page in PAGES if page.parent in (*WHOLE, WITH) or page.stem in SURE]
# What the machine or the version of JAX decides.
UNITS = re.compile(
    r"[\d.,]+ (?:s|ms|sec|rows/s|KiB|MiB|GiB|kFLOP|MFLOP|at a time)\b|\d+%|[▁-█]+|-> |  +"
)
# Words that one searches for, of the page of each problem.
WORDS = {
    "recompiles": "recompiles|retracing|cache miss",
    "ragged": "ragged|masking|padding",
    "out-of-memory": "out of memory|oom|resource_exhausted",
    "compile-time": "first call|minutes|compile time|startup",
    "many-fits": "thousands of fits|vmap|batched least squares",
    "long-scans": "long scans|backprop through time|remat|checkpoint",
    "jacobians": "jacobians|large|sparse|coloring",
    "many-devices": "devices|sharding|pmap",
    "precision": "float32|float64|precision|x64",
    "nans": "nans|nan",
}
# of the page of a problem
ANSWERS = ["With jitney", "What it gains", "What it refuses and costs", "Where next"]
LINES_OF_A_PROBLEM = 130
# of the page of an option
PARTS = ["Example", "What it proves", "What it refuses", "What it costs"]
PICTURES = ROOT / "docs" / "pictures"
DRAW = "python docs/pictures.py"
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """Language, text and first line of what is fenced as Python or text."""
    for block in re.finditer(
        r"^```(python|text)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL
    ):
        yield block[1], block[2], page.read_text()[: block.start(2)].count("\n")


@pytest.fixture(autouse=True)
def installed_examples(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """The examples under the name that they have where jitney is installed."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "jitney_examples").symlink_to(ROOT / "examples", target_is_directory=True)
    monkeypatch.syspath_prepend(folder)


def run(code: str, line: int, page: Path, names: dict[str, object]) -> str:
    """What a block prints. It is compiled so that a traceback and inspect find the page's own
    lines.
    """
    out = io.StringIO()
    # these mix dtypes
    loose = (
        page.parent.parent.name == "examples"
        or page.parent == WITH
        or re.search("import optax|from jitney_examples", page.read_text())
    )
    with (
        contextlib.redirect_stdout(out),
        stderr_of_jax(out) if page.parent == PROBLEMS else contextlib.nullcontext(),
        jax.numpy_dtype_promotion("standard" if loose else "strict"),
    ):
        exec(compile("\n" * line + code, str(page), "exec"), names)
    return out.getvalue()


@contextlib.contextmanager
def stderr_of_jax(out: io.StringIO) -> Iterator[None]:
    """Have what JAX logs, and warnings, among what a block prints: they are what a problem shows
    of itself. They stand on stderr otherwise, and a warning is an error in a test.
    """

    def shown(message: Warning | str, category: type[Warning], *_: object) -> None:
        out.write(f"{category.__name__}: {message}\n")

    handler, log = logging.StreamHandler(out), logging.getLogger("jax")
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = shown
            yield
    finally:
        log.removeHandler(handler)


@pytest.mark.core("README.md", "docs/quickstart.md", "docs/options/contracts.md")
@every_page
def test_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A reader can paste a page from top to bottom. What stands below a block is what it prints."""
    for library in LIBRARIES.get(page.stem, (page.stem,)) if page.parent == WITH else ():
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed; nox -s libraries installs it")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for language, code, line in blocks(page):
        if language == "python":
            assert not (printed and page.parent in WHOLE), f"this is shown nowhere:\n{printed}"
            printed = run(code, line, page, names)
        elif page in PRINTED and (printed or page.parent in WHOLE):
            missing = [
                each
                for each in code.splitlines()
                if UNITS.sub("", each) not in UNITS.sub("", printed)
            ]
            assert not missing, printed
            printed = ""
    for picture in tmp_path.glob("*.svg"):
        assert picture.read_text() == (PICTURES / picture.name).read_text(), (
            f"{DRAW} draws {picture.name} anew"
        )


def test_no_code_of_the_site_is_cut_off():
    """Lines of up to 100 columns stand on a screen of 1280 pixels; a page without a bar on its left
    has more.
    """
    assert [
        (str(page.relative_to(ROOT)), line) for page in ALL[1:] for line in too_wide(page)
    ] == []


def too_wide(page: Path) -> list[str]:
    text = page.read_text()
    widest = 140 if "hide: [navigation]" in text or not page.is_relative_to(ROOT / "docs") else 100
    code = re.findall(r"^```(?:python|py|sh)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in code for line in block.splitlines() if len(line) > widest]


@every_page
def test_a_page_whose_blocks_continue_one_another_says_so(page: Path):
    """A reader who takes one block alone is not left with a NameError, or was told."""
    taken = [unknown(code) for language, code, _ in blocks(page) if language == "python"]
    assert not any(taken) or ONE_SCRIPT in page.read_text(), taken


@pytest.mark.parametrize("problem", WORDS)
def test_every_problem_is_found_by_its_words(problem: str):
    """They stand in the title or in the line of synonyms below it; the parts are the same, a page
    is a screen and a half, and both the navigation and the first page begin with it.
    """
    text = (PROBLEMS / f"{problem}.md").read_text()
    code = re.compile(r"^```.*?^```\n", flags=re.MULTILINE | re.DOTALL)
    title, synonyms = text.splitlines()[0], text.splitlines()[2]
    found = f"{title} {synonyms}".lower()
    assert [word for word in WORDS[problem].split("|") if word not in found] == []
    assert re.findall(r"^## (.*)", code.sub("", text), flags=re.MULTILINE) == ANSWERS
    assert text.count("\n") <= LINES_OF_A_PROBLEM


def test_the_site_begins_with_the_problems():
    """In the navigation right after Home, and in what the first page says of where to begin."""
    listed = [f"problems/{problem}.md" for problem in WORDS]
    assert listed == re.findall(r"\((problems/.*?)\)", (ROOT / "docs" / "index.md").read_text())
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1]
    assert re.findall(r"(\S+\.md)$", nav, flags=re.MULTILINE)[:11] == ["index.md", *listed]
    assert {page.stem for page in PROBLEMS.glob("*.md")} == {*WORDS}


@pytest.mark.parametrize("option", NAMES)
def test_every_option_has_its_page(option: str):
    """With the same four parts, and a row in the table of all; `mesh` is on that of `shard`."""
    page = OPTIONS / f"{'shard' if option == 'mesh' else option}.md"
    text = page.read_text()
    assert re.search(rf"^# .*`{option}`", text)
    assert (
        re.findall(
            r"^#+ (.*)",
            re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL),
            flags=re.MULTILINE,
        )[1:]
        == PARTS
    )
    assert "](../errors.md#j" in text
    assert re.search(
        rf"^\| \[.*`{option}`.*\]\(options/{page.name}\)",
        (ROOT / "docs" / "options.md").read_text(),
        flags=re.MULTILINE,
    )
    assert f"options/{page.name}\n" in (ROOT / "mkdocs.yml").read_text()


def test_every_page_of_an_option_is_of_one():
    """What is not an option any more has no page either."""
    assert {page.stem for page in OPTIONS.glob("*.md")} == {*NAMES} - {"mesh"}


def unknown(code: str) -> set[str]:
    """Names that a block reads and does not make."""
    top = symtable.symtable(code, "block", "exec")
    made = {
        name.get_name()
        for name in top.get_symbols()
        if name.is_assigned() or name.is_imported() or name.is_namespace()
    }
    return {
        name
        for table in every(top)
        for name in (each.get_name() for each in table.get_symbols() if reads(table, each))
    } - made


def every(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """A scope and all within."""
    yield table
    for child in table.get_children():
        yield from every(child)


def reads(table: symtable.SymbolTable, name: symtable.Symbol) -> bool:
    """Whether a scope looks a name up among those of the page."""
    around = table.get_type() == "module" or name.is_global()
    return (
        name.is_referenced()
        and around
        and not hasattr(builtins, name.get_name())
        and name.get_name() != "__file__"
    )


@pytest.mark.parametrize("name", ["sizes", "batches"])
def test_the_chart_is_that_of_the_table(name):
    """It shows the figures that a page has, with their command."""
    drawn = runpy.run_path(str(ROOT / "docs" / "pictures.py"))[name]()
    assert drawn == (PICTURES / f"{name}.svg").read_text(), DRAW


def test_the_pictures_of_the_pages_are_there():
    """Each with words for those who do not see it."""
    shown = [
        (page, *each)
        for page in ALL
        for each in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text())
    ]
    assert shown
    assert [
        (str(page), file)
        for page, words, file in shown
        if not words or not (page.parent / file).is_file()
    ] == []


def test_what_the_readme_compiles_ahead_is_what_its_calls_use():
    """Its first block: `compile` traces and compiles, the two calls after it do neither; a list has
    a program for each bucket.
    """
    page = ROOT / "README.md"
    before, rest = page.read_text().split("```python\n", 1)
    code = "\n" * before.count("\n") + "\n" + rest.split("```", 1)[0]
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(code, str(page), "exec"), names)
    stats = names["residual"].stats
    assert (stats.calls, stats.hits, stats.traces) == (3, 2, 3)


def test_the_figures_of_the_benchmarks_are_those_of_their_pages():
    """Each number in the row of a page or an example stands there too."""
    entries = json.loads((ROOT / benchmarks.DATA).read_text())
    assert len(entries) > 30
    missing = {
        row.name: benchmarks.missing(row, entries[row.name])
        for row in benchmarks.ROWS
        if row.name in entries
    }
    assert {name: numbers for name, numbers in missing.items() if numbers} == {}


def test_the_page_of_benchmarks_is_that_of_the_data():
    """`python -m tests.perf.page --write` writes it."""
    entries = json.loads((ROOT / benchmarks.DATA).read_text())
    page = (ROOT / benchmarks.PAGE).read_text()
    assert page.split(benchmarks.BEGIN)[1].split(benchmarks.END)[0] == benchmarks.table(entries)
    assert set(entries) <= {row.name for row in benchmarks.ROWS}


def test_every_variable_of_the_environment_is_in_the_table():
    """Those that the package reads."""
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    table = (ROOT / "docs" / "environment.md").read_text()
    assert [
        name
        for name in sorted(set(re.findall(r"JITNEY_[A-Z_]+[A-Z]", source)))
        if f"`{name}`" not in table
    ] == []


def test_the_measure_of_automation_is_what_is_counted():
    """The table on the page, of the examples as they are."""
    page = (ROOT / "docs" / "automation.md").read_text()
    assert page.split("<!-- table -->\n")[1].split("\n<!-- its end -->")[0] == automation.table()
