"""Write the page of the gallery anew, from the examples and what they left: `python docs/gallery.py`, in the root of the project.

`python -m examples.gallery --full` comes before it: figures, plans and pictures are those of `out/gallery`. A test compares the code on
the page with the examples.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out" / "gallery"
PICTURES = ROOT / "docs" / "pictures" / "gallery"
BEGIN = """---
hide: [navigation]
---

# Gallery

Eight small programs that people recognise: each as one would write it, with one decorator line, and the gain from that line here. Where
there is no gain, the page says so. `python -m examples.gallery` runs all of them with small sizes, and writes an index with pictures.
`python -m examples.gallery pinn --full` runs one of them at the size of this page. Each file in `examples/gallery` is a script of about a
hundred lines in cells, and a notebook in `examples/gallery/notebooks`. Tests check the mathematics of each against a closed form, SciPy or
NumPy.

Figures are of {machine}. Both sides are called in turn and have to agree before anything is timed ([how](measuring.md)); "first call"
includes compiling. Four larger ports of real programs are in `examples/trf`, `homodyne`, `equilibrium` and `surrogate`.
"""


def section(name: str) -> str:
    """One example: words, picture, code, plan, figures."""
    from examples.gallery._card import example, kept, lines
    from examples.gallery.notebooks import cells

    module, run = example(name), kept(name, OUT)
    if run is None:
        raise FileNotFoundError(
            f"{OUT / name}.json: run `python -m examples.gallery {name} --full` first"
        )
    head, _, words = (module.__doc__ or "").strip().partition("\n\n")
    code = dict(cells(Path(str(module.__file__)).read_text()))
    function = next(text for heading, text in code.items() if heading.startswith("The function"))
    figures = "\n\n".join(f"{what}\n{text}" for what, text in run.measured.items())
    command = f"python -m examples.gallery {name}{' --full' if run.full else ''}"
    return f"""
## {heading(name)}

{head}

![{module.draw.__doc__.strip()}](pictures/gallery/{name}.svg)

{words}

```py
{function}


{code["The decorator line"]}
```

The plan:

```
{run.plan}
```

`{command}`, {run.date}:

```
{figures}
```

{lines(name)}
"""


def heading(name: str) -> str:
    """What an example is, in some words."""
    from examples.gallery._card import example, title

    return title(example(name)).partition(":")[0].partition(", ")[0]


def card(name: str) -> str:
    """Its place in the grid: a picture that leads to its section."""
    place = re.sub(r"[^a-z0-9]+", "-", heading(name).lower()).strip("-")
    return f"- **[{heading(name)}](#{place})**\n\n    [![{heading(name)}](pictures/gallery/{name}.svg)](#{place})\n"


def page(machine: str) -> str:
    """All of it."""
    from examples.gallery._card import NAMES

    grid = '\n<div class="grid cards" markdown>\n\n' + "\n".join(map(card, NAMES)) + "\n</div>\n"
    return BEGIN.format(machine=machine) + grid + "".join(map(section, NAMES))


def main() -> None:
    """Write the page and copy the pictures."""
    from examples.gallery._card import NAMES

    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        shutil.copy(OUT / f"{name}.svg", PICTURES)
    (ROOT / "docs" / "gallery.md").write_text(page(sys.argv[1]))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
