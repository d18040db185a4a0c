"""Run the gallery: `python -m examples.gallery` all eight with small sizes and an index, `... pinn
--full` one of them at full size.
"""

import argparse
import os
import subprocess
import sys
from html import escape
from pathlib import Path

import jitney

from ._card import NAMES, Card, example, kept, lines, run, title

DEVICES = "--xla_force_host_platform_device_count=8"


STYLE = (
    ":root{color-scheme:light dark}body{font:15px sans-serif;max-width:60em;margin:2em"
    " auto}pre{background:#8882;padding:.7em;overflow:auto;font-size:12px}"
)


def index(cards: list[Card]) -> str:
    """A page of what was run."""
    parts = [
        '<!doctype html><meta charset="utf-8"><title>jitney:'
        f" gallery</title><style>{STYLE}</style><h1>Gallery</h1>"
    ]
    for card in cards:
        parts += [
            f"<h2>{escape(title(example(card.name)))}</h2>",
            f'<img src="{card.name}.svg" alt="{card.name}">',
        ]
        for what, text in (("plan", card.plan), *card.measured.items()):
            parts.append(f"<h3>{escape(what)}</h3><pre>{escape(text)}</pre>")
        parts.append(f"<p>{escape(lines(card.name))}</p>")
    return "".join(parts)


def in_its_own_process(name: str, out: Path, *, full: bool) -> int:
    """The filter over devices: eight virtual ones are asked for before JAX starts, and no other
    example is measured on them.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()
    command = [
        sys.executable,
        "-m",
        str(__package__),
        name,
        "--out",
        str(out),
        *(["--full"] if full else []),
    ]
    return subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, check=False).returncode


def main() -> int:
    """Run what is named."""
    parser = argparse.ArgumentParser(prog="python -m examples.gallery", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one of them (default: all)")
    parser.add_argument(
        "--full", action="store_true", help="at the size of the figures in the documentation"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/gallery"),
        help="folder for pictures and figures (default: %(default)s)",
    )
    chosen = parser.parse_args()
    if chosen.full:
        jitney.configure(cache=False)  # first calls are to be compiled
    for name in [chosen.name] if chosen.name else NAMES:
        if name == "kalman" and DEVICES not in os.environ.get("XLA_FLAGS", ""):
            if status := in_its_own_process(name, chosen.out, full=chosen.full):
                return status
            continue
        print(f"\n{title(example(name))}\n")
        card = run(name, chosen.out, full=chosen.full)
        print(
            card.plan,
            *(f"\n{what}\n{figures}" for what, figures in card.measured.items()),
            f"\n{lines(name)}",
            sep="\n",
        )
    cards = [card for card in (kept(name, chosen.out) for name in NAMES) if card]
    (chosen.out / "index.html").write_text(index(cards))
    print(f"\nPictures and an index: {(chosen.out / 'index.html').resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
