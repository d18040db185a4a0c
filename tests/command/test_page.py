"""The page of a run: whole in itself, with the data inside, and seen by a browser where there is
one.
"""

import html.parser
import json
import re
import shutil
import subprocess

import pytest

from jitney._command.arguments import main
from jitney._command.page import page
from jitney._command.run_report import UNSEEN

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
WORK = {
    "traces": 1,
    "lowers": 1,
    "compiles": 1,
    "cache_hits": 0,
    "trace_seconds": 0.1,
    "lower_seconds": 0.2,
    "compile_seconds": 0.7,
}
TOLD = {
    "target": "fit<1>.py",
    "seconds": 4.0,
    "traces": 2,
    "lowers": 2,
    "compiles": 2,
    "cache_hits": 0,
    "transfers": None,
    "phases": {
        "import of jax": 1.0,
        "trace": 0.2,
        "lower": 0.4,
        "compile": 1.4,
        "cache read": 0.0,
        "all else": 1.0,
    },
    "work": [
        {"name": "<lambda>", "place": "fit.py:3 (f)", **WORK},
        {"name": "step", "place": "fit.py:9 (g)", **WORK},
    ],
    "programs": [
        {
            "function": "</script>",
            "line": None,
            "cause": "unknown",
            "shapes": None,
            "start": 0.5,
            "trace_seconds": 0.1,
            "lower_seconds": 0.2,
            "compile_seconds": 0.7,
            "cache_hit": False,
        }
    ],
    "causes": [
        {
            "function": "f",
            "line": "fit.py:3 (f)",
            "cause": "first call",
            "times": 10,
            "seconds": 0.5,
            "example": "",
        },
        {
            "function": "g",
            "line": "fit.py:9 (g)",
            "cause": "a new function",
            "times": 9,
            "seconds": 1.5,
            "example": "x & y",
        },
    ],
    "changes": [
        {
            "seconds": 1.5,
            "at_most": True,
            "what": "a <b> & c",
            "where": "fit.py:9",
            "write": 'pad={"n": "pow2"}',
        }
    ],
    "timeline": [{"phase": "compile", "name": "<lambda>", "start": 1.0, "seconds": 0.7}],
    "flame": {
        "name": "all of it",
        "phase": "",
        "seconds": 2.0,
        "times": 0,
        "jits": {},
        "inside": [
            {
                "name": "main (fit.py:3)",
                "phase": "",
                "seconds": 1.5,
                "times": 0,
                "jits": {},
                "inside": [
                    {
                        "name": "compile",
                        "phase": "compile",
                        "seconds": 1.0,
                        "times": 2,
                        "jits": {},
                        "inside": [],
                    },
                    {
                        "name": "trace",
                        "phase": "trace",
                        "seconds": 0.5,
                        "times": 2,
                        "jits": {"<lambda>": 2},
                        "inside": [],
                    },
                ],
            },
            {"name": "<lambda>", "phase": "", "seconds": 0.5, "times": 1, "jits": {}, "inside": []},
        ],
    },
    "decorated": [
        {
            "name": "f",
            "function": "f() at <fit>.py:3",
            "calls": 5,
            "traces": 2,
            "compiles": 2,
            "counted": {"n": "calls"},
            "sizes": {"n": [[5, 2, 8], [7, 1, 8], [100, 2, 128]]},
            "plan": {
                "of": "x: float32[100]",
                "lines": [
                    {"name": "fill", "taken": True, "why": "n 100 -> 128 & more"},
                    {"name": "chunk", "taken": False, "why": "it <fits>"},
                ],
                "unknown": "",
            },
            "programs": [
                {"sizes": "n=8", "arguments": 32, "outputs": 32, "temporaries": 0},
                {"sizes": "n=128", "arguments": None, "outputs": None, "temporaries": None},
            ],
        }
    ],
    "unseen": list(UNSEEN),
}
NOTHING = {"name": "all of it", "phase": "", "seconds": 0.0, "times": 0, "jits": {}, "inside": []}
EMPTY = {
    **TOLD,
    "work": [],
    "programs": [],
    "causes": [],
    "changes": [],
    "timeline": [],
    "flame": NOTHING,
    "decorated": [],
}


class Parsed(html.parser.HTMLParser):
    """Whether each tag is closed, what links where, and the data."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.data, self.tags = [], [], "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [
            value for name, value in attrs if name in ("src", "href", "srcset", "action")
        ]
        if tag not in ("meta", "input", "br", "link"):
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][1].get("id") == "data":
            self.data += data


@pytest.mark.parametrize("told", [TOLD, EMPTY], ids=["told", "empty"])
def test_the_page_is_whole_in_itself(told):
    """Each tag is closed, nothing comes from elsewhere, and the data inside are those that were
    told.
    """
    text = page(told)
    parsed = Parsed(text)
    assert parsed.open == []
    assert parsed.links == []
    assert not re.search(r"https?://|//\w+\.\w+|@import|url\(", text)
    assert json.loads(parsed.data) == told
    assert "<lambda>" not in text.replace(parsed.data, "")
    assert {"h1", "svg", "style", "script"} <= set(parsed.tags)


def test_timings_that_are_wrong_are_shown_with_what_to_write():
    """Nothing is shown where there is none."""
    wrong = {"where": "fit.py:3 to 5", "what": "nothing waits for <f()>", "write": "wait(y < 1)"}
    text = page({**TOLD, "unwaited": [wrong]})
    for part in ("own figures", "fit.py:3 to 5", "nothing waits for &lt;f()&gt;", "wait(y &lt; 1)"):
        assert part in text
    assert "own figures" not in page(TOLD)


def test_report_makes_a_page_of_data(tmp_path):
    """Of what `run --report out.json` has written."""
    (tmp_path / "run.json").write_text(json.dumps(TOLD))
    assert main(["report", str(tmp_path / "run.json"), str(tmp_path / "out.html")]) == 0
    assert (tmp_path / "out.html").read_text() == page(TOLD)


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read"), ("{", "is no JSON"), ("[1]", "holds no report")]
)
def test_other_data_are_refused(text, said, tmp_path, capsys):
    """With what is read, and status 2."""
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    assert main(["report", str(tmp_path / "run.json"), str(tmp_path / "out.html")]) == 2
    assert said in capsys.readouterr().err


ACT = """
<script>
const out = [], tables = document.querySelectorAll("section.table"), of = table => [...table.querySelectorAll("tbody tr")];
const first = table => of(table).filter(row => !row.hidden).map(row => row.cells[0].textContent).join(" ");
const why = tables[0], heads = why.querySelectorAll("th button");
heads[4].click(); out.push(first(why)); heads[4].click(); out.push(first(why)); heads[0].click(); out.push(first(why));
const box = why.querySelector("input"); box.value = "NEW"; box.dispatchEvent(new Event("input")); out.push(first(why));
const bars = [...document.querySelectorAll(".flame button")], wide = bar => bar.hidden ? 0 : Math.round(parseFloat(bar.style.width));
bars[1].click(); out.push(bars.map(wide).join(" ")); bars[0].click(); out.push(bars.map(wide).join(" "));
const flame = document.querySelector(".flame").getBoundingClientRect();
out.push(bars.every(bar => bar.getBoundingClientRect().right <= flame.right + 1) ? "inside" : "outside");
out.push([...document.querySelectorAll("dt.taken")].map(term => term.textContent).join(" "));
const seen = [...document.querySelectorAll(".strip svg rect, .bar div span, dd")].filter(part => part.getBoundingClientRect().height > 0);
out.push(seen.length, document.querySelectorAll(".strip").length);
out.push(document.documentElement.scrollWidth <= window.innerWidth ? "fits" : "too wide " + document.documentElement.scrollWidth);
out.push(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light", getComputedStyle(document.body).backgroundColor);
document.title = out.join("|");
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize(
    ("width", "dark"), [(400, False), (1600, True)], ids=["narrow and light", "wide and dark"]
)
def test_a_browser_sorts_filters_and_shows_it(width, dark, tmp_path):
    """No error in its console; columns sort as numbers and as words, the box filters, and nothing
    is wider than the window.
    """
    (tmp_path / "out.html").write_text(page(TOLD).replace("</body>", f"{ACT}</body>"))
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--window-size={width},900",
        f"--user-data-dir={tmp_path / 'profile'}",
        f"--blink-settings=preferredColorScheme={int(not dark)}",
    ]
    done = subprocess.run(
        [BROWSER, *options, "--dump-dom", (tmp_path / "out.html").as_uri()],
        capture_output=True,
        text=True,
        check=False,
    )
    title = re.search("<title>(.*?)</title>", done.stdout)[1].replace("&lt;", "<")
    assert "CONSOLE" not in done.stderr
    assert title.split("|") == [
        "f g",
        "g f",
        "g f",
        "g",
        "100 100 67 33 0",
        "100 75 50 25 25",
        "inside",
        "fill",
        "16",
        "1",
        "fits",
        *(["dark", "rgb(22, 24, 27)"] if dark else ["light", "rgb(255, 255, 255)"]),
    ]
