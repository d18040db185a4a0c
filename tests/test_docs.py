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
