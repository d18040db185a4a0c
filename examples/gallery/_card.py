"""What the gallery makes of an example: its printed plan, its measurements, its picture, kept in a
folder for the index and the page.
"""

from __future__ import annotations

import importlib
import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

import matplotlib as mpl
from matplotlib.figure import Figure

from .._lines import code_lines, lines_of

NAMES = (
    "neural_ode",
    "gaussian_process",
    "ragged_rnn",
    "ensemble",
    "pinn",
    "classifier",
    "kalman",
    "monte_carlo",
)
# of each example: what is written by hand in place of the decorator line
BY_HAND = {
    "neural_ode": ("by_hand",),
    "gaussian_process": ("masked", "rounded", "by_hand"),
    "ragged_rnn": ("masked", "rounded", "by_hand"),
    "ensemble": ("by_hand",),
    "pinn": ("loss_by_hand", "by_hand"),
    "classifier": ("rounded", "loss_by_hand", "by_hand"),
    "kalman": ("compiled_by_hand",),
    "monte_carlo": ("by_hand",),
}
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gallery",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "path.simplify_threshold": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


# Of a file that is looked at by itself or in an `<img>`, which does not see the page around it.
SCHEME = (
    "svg { color: #1c1e21; background: #fff; } @media (prefers-color-scheme: dark) { svg { color:"
    " #e6e8ea; background: #16181b; } }"
)


def in_the_readers_scheme(svg: str) -> str:
    """A picture of matplotlib with text and axes that are light where the reader's system is dark.

    What is black takes the colour of the text. The other colours of the gallery read on both.
    """
    svg = svg.replace("#000000", "currentColor").replace("<svg ", '<svg fill="currentColor" ', 1)
    return svg.replace("</style>", f" {SCHEME}</style>", 1)


@dataclass(frozen=True)
class Card:
    """One example, run."""

    name: str
    full: bool
    plan: str
    measured: dict[str, str]
    seconds: float
    date: str


def example(name: str) -> ModuleType:
    """The module of an example."""
    return importlib.import_module(f"{__package__}.{name}")


def title(module: ModuleType) -> str:
    """The first line of what it says of itself."""
    return (module.__doc__ or "").partition("\n")[0]


def lines(name: str) -> str:
    """Lines of code beside the function: of the decorator's cell, and by hand."""
    source = Path(str(example(name).__file__)).read_text()
    ours = source.partition("# %% The decorator line\n")[2].partition("# %% ")[0]
    theirs = lines_of(example(name), *BY_HAND[name])
    return f"Lines of code beside the function: {code_lines(ours)}, and by hand {theirs}."


def decisions(text: str) -> str:
    """Of a printed plan, what was decided: not the lines of what is the same in every plan, of
    arrays, and of the machine's folders.
    """
    return re.sub(r"\ncontract .*", "", text, flags=re.DOTALL)


def run(name: str, out: Path, *, full: bool) -> Card:
    """Plan, compare and draw an example; what it made lies in the folder."""
    module, began = example(name), time.perf_counter()
    plan = "\n\n".join(decisions(str(part)) for part in module.plan())
    measured = {what: str(figures) for what, figures in module.compare(full=full).items()}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 2.8), layout="constrained")
        module.draw(figure, full=full)
        out.mkdir(parents=True, exist_ok=True)
        file = out / f"{name}.svg"
        figure.savefig(file, transparent=True, metadata={"Date": None, "Creator": None})
    # A hundredth of a point is seen by nobody.
    drawn = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", file.read_text())
    file.write_text(in_the_readers_scheme(drawn))
    card = Card(
        name,
        full,
        plan,
        measured,
        time.perf_counter() - began,
        time.strftime("%Y-%m-%d", time.gmtime()),
    )
    (out / f"{name}.json").write_text(json.dumps(asdict(card), indent=1))
    return card


def kept(name: str, out: Path) -> Card | None:
    """What an earlier run has left."""
    file = out / f"{name}.json"
    return Card(**json.loads(file.read_text())) if file.exists() else None
