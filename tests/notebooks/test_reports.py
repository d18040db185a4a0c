"""Each report in a notebook: one display, in HTML with the text beside it, and text where it is
printed or formatted.
"""

import re
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.rest

DEFINED = """\
def fn(w: Float[Array, "m"], x: Float[Array, "n m"]) -> Float[Array, ""]:
    return jnp.sum(jnp.tanh(x @ w))

f = jitney.optimize(pad={"n": "pow2"})(fn)
w, x = np.ones(3, np.float32), np.ones((10, 3), np.float32)
rows = {"w": w, "x": np.ones((1000, 3), np.float32)}
streamed = jitney.stream(f, rows, chunk={"n": 100}, progress=False)
with jitney.watch() as watched:
    f(w, np.ones((20, 3), np.float32))
with jitney.profile("traces") as profile:
    f(w, x)
@jitney.optimize(shard={"n": "data"})
def sharded(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)
with jitney.mesh(data=2):
    communication = jitney.analysis.communication(sharded, np.ones(4, np.float32))
f.export("fn.jitney", sizes={"n": 10, "m": 3})
None"""
# Tables: HTML in a notebook, and the same text beside it.
TABLES = {
    "plan": "f.plan(w, x)",
    "a derivative's plan": "f.grad.plan(w, x)",
    "stats": "f.stats",
    "measure": "jitney.measure(f, w, x, seconds=0.01)",
    "a program's measure": "f.measure(w, x, seconds=0.01)",
    "strategy": "jitney.analysis.strategy(f, w, x)",
    "frontier": "jitney.analysis.frontier(f, w, x, wrt='w')",
    "communication": "communication",
    "precision": "jitney.analysis.precision_report(f, w, x)",
    "profile": "profile",
    "watch": "watched",
    "simulation": "jitney.simulation.simulate(f, w, x, device='h200')",
    "devices": "jitney.devices()",
    "placement": "jitney.analysis.visualize({'w': w, 'x': jnp.ones(3)})",
}
# Others: text alone.
TEXTS = {
    "program": "f",
    "derivative": "f.grad",
    "streamed": "streamed",
    "mesh": "jitney.mesh(data=1)",
    "lowered": "f.lower(w, x)",
    "bucket": "jitney.Bucket(multiple=8)",
    "loss scale": "jitney.LossScale()",
}
# Text in a line, of which HTML makes a table.
LINES = {
    "axes": "f.axes(w, x)",
    "statistics of a stream": "streamed.stats",
}
PICTURES = {
    "plan": "f.plan(w, x).draw()",
    "frontier": "jitney.analysis.frontier(f, w, x, wrt='w').svg()",
}


@pytest.fixture(scope="module")
def defined(notebook):
    """The kernel, with a function of each kind."""
    assert notebook.run(DEFINED).error == ""
    return notebook


def displayed(notebook, code):
    """What one expression at the end of a cell displays: its result, and nothing else."""
    cell = notebook.run(f"shown = {code}\nshown")
    assert (cell.error, cell.printed, cell.warned, cell.displays) == ("", "", "", [])
    return cell.result


def lines(text):
    """Without what follows the last letter of each line."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_displayed_once(defined, name):
    """As well-formed HTML, whose table is the text beside it."""
    result = displayed(defined, TABLES[name])
    assert set(result) == {"text/plain", "text/html"}
    assert "\x1b" not in "".join(result.values())
    root = ElementTree.fromstring(f"<cell>{result['text/html']}</cell>")
    (table,) = root.iter("pre")
    assert lines("".join(table.itertext())) == lines(result["text/plain"])
    pictures = list(root.iter("{http://www.w3.org/2000/svg}svg"))
    assert len(pictures) == ("plan" in name or name == "frontier")


def test_a_loaded_program_is_a_table_too(defined):
    """Its text is short, as that of a function; printed it is the table."""
    result = displayed(defined, "jitney.load('fn.jitney')")
    assert set(result) == {"text/plain", "text/html"}
    assert result["text/plain"].startswith("<jitney loaded fn(w: ")
    (table,) = ElementTree.fromstring(result["text/html"]).iter("pre")
    assert lines("".join(table.itertext())) == lines(defined.run("print(shown)").printed)


@pytest.mark.parametrize("name", LINES)
def test_lines_are_a_table_in_a_notebook(defined, name):
    """One display, with the words of what is printed."""
    result = displayed(defined, LINES[name])
    assert set(result) == {"text/plain", "text/html"}
    (table,) = ElementTree.fromstring(result["text/html"]).iter("pre")
    printed = defined.run("print(shown)").printed
    assert {*re.findall(r"[\w.]+", printed)} <= {*re.findall(r"[\w.]+", "".join(table.itertext()))}


@pytest.mark.parametrize("name", TEXTS)
def test_other_results_are_text(defined, name):
    """One display, of text alone."""
    result = displayed(defined, TEXTS[name])
    assert set(result) == {"text/plain"}
    assert "\x1b" not in result["text/plain"]
    assert "ipykernel" not in result["text/plain"]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_displayed_once(defined, name):
    """A front end takes the HTML or the SVG, which are the same; the text is short."""
    result = displayed(defined, PICTURES[name])
    assert set(result) == {"text/plain", "text/html", "image/svg+xml"}
    assert result["text/html"] == result["image/svg+xml"]
    assert ElementTree.fromstring(result["text/html"]).get("aria-label") in result["text/plain"]
    assert len(result["text/plain"]) < 200


@pytest.mark.parametrize("name", [*TABLES, *LINES, *TEXTS])
def test_text_is_text(defined, name):
    """`print`, `str`, `repr` and f-strings give it, and display nothing."""
    shown = displayed(defined, {**TABLES, **LINES, **TEXTS}[name])["text/plain"]
    cell = defined.run(
        "texts = [str(shown), f'{shown}', repr(shown), f'{shown!r}', format(shown)]\n"
        "print(shown); print('-' * 9); print(*texts, sep='\\n' + '-' * 9 + '\\n')"
    )
    assert (cell.error, cell.warned, cell.displays, cell.result) == ("", "", [], None)
    assert "\x1b" not in cell.printed
    texts = [lines(text) for text in re.split(r"^-{9}\n", cell.printed, flags=re.MULTILINE)]
    assert len(texts) == 6
    if name in TABLES:
        assert texts == 6 * [lines(shown)]


def test_several_in_a_cell_are_displayed_once_each(defined):
    """By `display`, beside the last expression."""
    cell = defined.run("display(f.stats)\ndisplay(f.plan(w, x))\nf.stats")
    assert [sorted(each) for each in (*cell.displays, cell.result)] == 3 * [
        ["text/html", "text/plain"]
    ]


def test_a_tuple_of_reports_is_text(defined):
    """IPython asks each for its text, without colours."""
    result = displayed(defined, "(f.stats, f.plan(w, x))")
    assert set(result) == {"text/plain"}
    assert "\x1b" not in result["text/plain"]
