"""The code on the pages runs: each page's Python blocks, in order, as one script."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if "```python\n" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A reader can paste a page from top to bottom. Blocks that only show something are fenced as `text`."""
    monkeypatch.chdir(tmp_path)
    blocks = re.finditer(r"^```python\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    names = {"__name__": "__main__"}
    for block in blocks:
        line = page.read_text()[: block.start(1)].count("\n")
        code = "\n" * line + block[1]  # so that a traceback and inspect find the page's own lines
        exec(compile(code, str(page), "exec"), names)


def test_what_the_readme_compiles_ahead_is_what_its_calls_use():
    """Its first block: `compile` traces and compiles, the calls after it do neither."""
    page = ROOT / "README.md"
    before, rest = page.read_text().split("```python\n", 1)
    code = "\n" * before.count("\n") + "\n" + rest.split("```", 1)[0]
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(code, str(page), "exec"), names)
    stats = names["residual"].stats
    assert (stats.calls, stats.hits, stats.traces) == (2, 2, 1)
