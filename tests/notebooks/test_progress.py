"""The progress bar of a notebook: one display, which is empty in the end, without
ipywidgets.
"""

import pytest

pytestmark = pytest.mark.rest

RUNS = {
    "stream": "jitney.stream(total, np.ones(40, np.float32), chunk={'n': 4}).result",
    "scan_steps": "jitney.scan_steps(lambda x: x + 1, 40, progress=True)(jnp.float32(0))",
}
TOTAL = """\
import jitney._text.console
jitney._text.console._REDRAWN_AFTER = 0

@jitney.optimize
def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)"""


@pytest.mark.parametrize("run", RUNS)
def test_a_bar_leaves_nothing(notebook, run):
    """No text, no widget and no warning; the result is displayed as always."""
    assert notebook.run(f"import sys\nsys.modules['ipywidgets'] = None\n{TOTAL}").error == ""
    cell = notebook.run(f"value = {RUNS[run]}\nimport jax\njax.effects_barrier()\nfloat(value)")
    assert (cell.error, cell.printed, cell.warned) == ("", "", "")
    assert cell.displays == [{"text/plain": "", "text/html": ""}]
    assert cell.result == {"text/plain": "40.0"}


def test_a_run_that_fails_leaves_the_error_alone(notebook):
    """The bar is empty there too."""
    notebook.run(TOTAL)
    notebook.run(
        "class Rows:\n    shape, dtype = (40,), np.dtype('float32')\n"
        "    def __getitem__(self, rows):\n"
        "        if rows.start > 20: raise KeyError('lost')\n"
        "        return np.ones(rows.stop - rows.start, np.float32)"
    )
    cell = notebook.run("jitney.stream(total, Rows(), chunk={'n': 4}, retries=0)")
    assert "lost" in cell.error
    assert [each["text/plain"] for each in cell.displays] in ([""], [])
