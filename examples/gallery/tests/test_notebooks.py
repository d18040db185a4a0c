"""Each notebook is executed as Jupyter does, and what its cells display is looked at."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbclient
import nbformat
import pytest

from examples.gallery import _card

HERE = Path(_card.__file__).parent / "notebooks"
SECONDS = 300


@pytest.fixture(scope="module", params=_card.NAMES)
def cells(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[str, list[Any]]]:
    """Source and outputs of the cells of one notebook, in a folder of its own."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "src"))
        notebook = nbformat.read(HERE / f"{request.param}.ipynb", as_version=4)
        nbclient.NotebookClient(
            notebook, timeout=SECONDS, resources={"metadata": {"path": str(folder)}}
        ).execute()
    return [(cell.source, cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.rest
def test_a_notebook_runs_and_displays_what_it_says(cells: list[tuple[str, list[Any]]]):
    """Plans and figures are printed, the picture is displayed once, and no other cell says
    anything.
    """
    *quiet, (_, printed), (_, drawn) = cells
    assert [outputs for _, outputs in quiet if outputs] == []

    # Plain text alone, in which functions are of their cells.
    assert {(each.output_type, each.name) for each in printed} == {("stream", "stdout")}
    text = "".join(each.text for each in printed)
    assert "\x1b" not in text
    assert "ipykernel" not in text
    assert not re.search(r"\d{6,}\.py", text)
    assert re.search(r"In\[\d+\]:\d+", text)

    # One picture, which is transparent and takes the colour of the page.
    (picture,) = drawn
    assert picture.output_type == "execute_result"
    assert set(picture.data) == {"text/plain", "text/html"}
    assert "#000000" not in picture.data["text/html"]
    assert "#ffffff" not in picture.data["text/html"]
    root = ElementTree.fromstring(picture.data["text/html"])
    assert root.get("fill") == "currentColor"
