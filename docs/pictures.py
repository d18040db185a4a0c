"""Write the pictures of the pages anew: `python docs/pictures.py`, in the root of the project.

Those of `docs/in-pictures.md` are what its blocks write, and one more of its functions on eight virtual devices. The chart of sizes is
drawn from the table in `docs/axes.md`, which `python -m tests.perf.sizes` measures, that of batches from the table in
`docs/options/auto.md`, by `python -m tests.perf.auto`. Tests compare the files with what is drawn.
"""

from __future__ import annotations

import math
import os
import re
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
SIDES = {
    "`jax.jit` at exact size": "jax.jit",
    '`pad={"n": "pow2"}`': 'pad={"n": "pow2"}',
    "masks written by hand": "masks by hand",
}
WIDE, LEFT, HIGH = 480, 146, 30


def written(folder: Path) -> dict[str, object]:
    """Run the page in a folder; what it makes by name."""
    page = ROOT / "docs" / "in-pictures.md"
    names: dict[str, object] = {"__name__": "__main__"}
    here = Path.cwd()
    os.chdir(folder)
    try:
        exec(compile(code_of(page), str(page), "exec"), names)  # noqa: S102 - a page of the project
    finally:
        os.chdir(here)
    return names


def code_of(page: Path) -> str:
    """All Python of a page, each line at its place."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = line == "```python" if fence else inside
    return "\n".join(lines)


def shards(names: dict[str, object]) -> str:
    """The layer of the page on eight devices."""
    import jax.numpy as jnp
    import jitney

    layer: Any = names["layer"]
    with jitney.mesh(data=4, model=2):
        return layer.plan(jnp.ones((64, 32)), jnp.ones((256, 64)), jnp.ones(32)).draw()


def sizes() -> str:
    """The table of `docs/axes.md` as bars: seconds of a thousand calls, each of a size of its own."""
    from jitney._text.svg import A, B, C, box, picture, words

    rows = re.findall(
        r"^\| ([^|]+?) \| (\d+) \| ([\d.]+) \| \d+ \|$",
        (ROOT / "docs" / "axes.md").read_text(),
        flags=re.MULTILINE,
    )
    rows = [(SIDES[name], int(count), float(seconds)) for name, count, seconds in rows]
    most = max(seconds for _, _, seconds in rows)
    parts = [words(8, 20, "A thousand calls of random sizes, compiling included", "name")]
    for i, (name, count, seconds) in enumerate(rows):
        y = 34 + i * HIGH
        wide = max(1.5, (WIDE - LEFT - 150) * seconds / most)
        parts += [
            words(LEFT - 8, y + 14, name, "", "end"),
            box(LEFT, y, wide, 20, (B, A, C)[i], "none"),
            words(LEFT + wide + 8, y + 14, f"{seconds:g} s, {count} programs", "soft"),
        ]
    y = 34 + len(rows) * HIGH + 12
    parts.append(words(8, y, "python -m tests.perf.sizes, two cores, jax 0.10.2", "code"))
    return picture("jitney-chart", escape("seconds of a thousand sizes"), WIDE, y + 12, parts, 680)


def batches() -> str:
    """The first table of `docs/options/auto.md` as lines: how many times as fast as plain each
    program is.
    """
    from jitney._text.svg import FRAME, A, B, picture, words

    text = (ROOT / "docs" / "options" / "auto.md").read_text()
    # The table behind it is of another version of JAX.
    text, _, _ = text.partition("\nThe table is of ")
    cells = re.findall(
        r"^\| ([\w -]+) \| ([\d.]+) \| ([\d.]+), [^|]+\| ([\d.]+), [^|]+\| [\d.]+ \(",
        text,
        flags=re.MULTILINE,
    )
    gains = [
        (name, float(plain) / float(hand), float(plain) / float(ours))
        for name, plain, hand, ours in cells
    ]
    gains.sort(key=lambda each: -each[1])

    def at(gain: float) -> float:
        return 150 + 280 * math.log(gain / 0.8) / math.log(24 / 0.8)

    low = 46 + len(gains) * 15
    parts = [
        words(8, 20, "24 batches: times as fast as jax.jit(jax.vmap(f))", "name"),
        *[
            f'<circle cx="{x}" cy="33" r="4" fill="{colour}"/>'
            for x, colour in ((154, B), (254, A))
        ],
        words(162, 37, "best by hand", "soft"),
        words(262, 37, "auto=True", "soft"),
    ]
    for tick in (1, 2, 4, 8, 16):
        parts.append(f'<path d="M{at(tick):.1f} 44V{low}" {FRAME} stroke-width="0.5"/>')
        parts.append(words(at(tick), low + 14, f"{tick}", "soft", "middle"))
    for i, (name, hand, ours) in enumerate(gains):
        y = 54 + i * 15
        parts.append(words(142, y + 4, name, "", "end"))
        parts.append(f'<path d="M{at(hand):.1f} {y}H{at(ours):.1f}" {FRAME}/>')
        for gain, colour in ((hand, B), (ours, A)):
            parts.append(f'<circle cx="{at(gain):.1f}" cy="{y}" r="4" fill="{colour}"/>')
    parts.append(
        words(8, low + 32, "python -m tests.perf.auto, two idle cores, jax 0.10.2", "code")
    )
    return picture("jitney-chart", "gains of 24 batches", WIDE, low + 40, parts, 680)


def main() -> None:
    """Write all of them."""
    names = written(PICTURES)
    (PICTURES / "shards.svg").write_text(shards(names))
    (PICTURES / "sizes.svg").write_text(sizes())
    (PICTURES / "batches.svg").write_text(batches())


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"  # before JAX starts
    main()
