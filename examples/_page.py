"""One page of a demo: what was gained, what each job took, its pictures, where to read on. It is a
file beside the pictures, and asks no other host for anything.
"""

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ._tables import JOBS, NOT_GAINED, WARM, figure, job, warm_rows
from .gains._gain import Gain

ROOT = Path(__file__).parents[1]
READ_ON = {
    "quickstart": "docs/quickstart.md",
    "moving from jax.jit": "docs/moving.md",
    "all options": "docs/options.md",
    "what others do better": "docs/compared.md",
    "figures of all pages": "docs/benchmarks.md",
    "the gallery": "docs/gallery.md",
}
OF_GAINS = {
    "fits": "docs/fits.md",
    "widths": "docs/options/auto.md",
    "sizes": "docs/options/pad.md",
    "memory": "docs/options/chunk.md",
    "jacobian": "docs/derivatives.md",
    "starts": "docs/caching.md",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --faint: #666; --line: #d5d5d5; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e4; --faint: #a8a8a8; --line: #444; --paper: #16181b }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 64em; margin: 2em auto; padding: 0 1em }
a { color: light-dark(#0b6e99, #7cc4e8) }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto }
th, td { padding: .25em .8em; text-align: right; border-bottom: 1px solid var(--line) }
th { font-weight: 600; vertical-align: bottom }
td:first-child, th:first-child, td.text, th.text { text-align: left }
tr.group td { font-weight: 600; padding-top: 1em }
dt { font-weight: 600; margin-top: .7em }
dd, .faint { color: var(--faint) }
figure { margin: 0 }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(19em, 1fr)); gap: 1em }
img { width: 100%; background: #fff; border-radius: 4px }
figcaption { font-size: .85em; color: var(--faint) }
"""


def page(
    folder: Path,
    measured: Sequence[Gain],
    summaries: Mapping[str, Mapping[str, Any]],
    pictures: Mapping[str, Sequence[Path]],
) -> str:
    """The page as it is to lie in the folder."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>jitney: the demo</title><style>{STYLE}</style>",
        f"<h1>jitney: what the demo did</h1><p class=faint>{escape(machine())}</p>",
        *_gains(folder, measured),
        *_jobs(summaries),
        *_pictures(folder, pictures),
        "<h2>Where next</h2><p>",
        " · ".join(_link(folder, ROOT / path, name) for name, path in READ_ON.items()),
        "</p></html>",
    ]
    return "\n".join(parts) + "\n"


def machine() -> str:
    """Versions, and what this ran on."""
    names = ("jitney", "jax", "jaxlib", "equinox", "numpy")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    system = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores"
    return f"{versions}; Python {platform.python_version()}; {system}"


def _gains(folder: Path, measured: Sequence[Gain]) -> Iterable[str]:
    if not measured:
        return
    yield f"<h2>What was gained here</h2><p>{escape(NOT_GAINED)}</p><table>"
    yield "<tr><th></th><th>today</th><th>by hand</th><th>jitney</th>"
    yield "<th>today / jitney</th><th>by hand / jitney</th></tr>"
    for gain in measured:
        name = _link(folder, ROOT / OF_GAINS[gain.name], gain.name)
        yield f'<tr class=group><td colspan="6">{name}: {escape(gain.title)}</td></tr>'
        for line in gain.lines:
            sides = [figure(value) for value in (line.today, line.by_hand, line.jitney)]
            yield _row((line.what, *sides, line.gain, line.beside_hand))
    yield "</table><h3>Compared with whom</h3><dl>"
    for gain in measured:
        yield f"<dt>{escape(gain.name)}</dt><dd>Today: {escape(gain.today)}.<br>"
        yield f"By hand: {escape(gain.by_hand)}.<br>jitney: {escape(gain.jitney)}.<br>"
        yield f"Equal before a figure is shown: {escape(gain.equal)}.<br>"
        yield f"Again: <code>{escape(gain.command)}</code></dd>"
    yield "</dl>"


def _jobs(summaries: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    if not summaries:
        return
    yield "<h2>What jitney did</h2><table>"
    yield _row(JOBS, "th")
    yield from (_row((name, *job(each))) for name, each in summaries.items())
    yield f"</table><h3>{escape(WARM)}</h3><table>"
    yield _row(("job", "what", "jitney", "plain jax.jit"), "th")
    yield from map(_row, warm_rows(summaries))
    yield "</table>"


def _pictures(folder: Path, pictures: Mapping[str, Sequence[Path]]) -> Iterable[str]:
    for name, files in pictures.items():
        yield f"<h2>{_link(folder, ROOT / 'examples' / name / 'README.md', name)}</h2>"
        yield "<div class=pictures>"
        for file in files:
            where, alt = _relative(folder, file), escape(f"{name}: {file.stem.replace('_', ' ')}")
            image = f'<a href="{where}"><img src="{where}" alt="{alt}" loading="lazy"></a>'
            yield f"<figure>{image}<figcaption>{escape(file.stem)}</figcaption></figure>"
        yield "</div>"


def _row(cells: Iterable[str], tag: str = "td") -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _link(folder: Path, to: Path, name: str) -> str:
    return f'<a href="{_relative(folder, to)}">{escape(name)}</a>'


def _relative(folder: Path, to: Path) -> str:
    return quote(Path(os.path.relpath(to, folder)).as_posix())
