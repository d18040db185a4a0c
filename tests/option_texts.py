"""Texts that repeat the table of options: `python -m tests.option_texts` writes them again.

They are the arguments in the docstring of `optimize`, for `help()` and editors, and the rows in
`docs/options.md`. A test compares both with the table, so nobody changes them by hand.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from jitney._signature.options import NAMES, OPTIONS

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "src" / "jitney" / "_signature" / "options" / "table.py"
DECORATOR = ROOT / "src" / "jitney" / "_interface" / "optimize.py"
PAGE = ROOT / "docs" / "options.md"
WIDTH = 100
# Links from outside lead to these.
_ANCHORS = {"chunk": "chunk-and-memory", "shard": "shard-and-mesh"}
_ARGUMENTS = re.compile(r"(?<=^    Args:\n)        fn: .*?(?=\n\n    Returns:)", re.M | re.S)
_ROWS = re.compile(r"(?<=^\|---\|---\|---\|\n)\| \[`.*?(?=\n\n)", re.M | re.S)


def main() -> None:
    """Write both files."""
    for file, text in written().items():
        file.write_text(text)


def written() -> dict[Path, str]:
    """Return each file and the text that it should have."""
    texts = {}
    for file, old, new in [(DECORATOR, _ARGUMENTS, arguments()), (PAGE, _ROWS, rows())]:
        text = file.read_text()
        assert len(old.findall(text)) >= 1, f"{file.name} has no place for the options"
        texts[file] = old.sub(lambda _, new=new: new, text, count=1)
    return texts


def arguments() -> str:
    """Return the lines of a docstring: `fn`, and each option with what the table says of it."""
    fn = "A function, method, `functools.partial`, or callable Equinox module."
    return "\n".join(_argument(name, text) for name, text in {"fn": fn, **described()}.items())


def _argument(name: str, text: str) -> str:
    return textwrap.fill(
        f"{name}: {text}",
        WIDTH,
        initial_indent=" " * 8,
        subsequent_indent=" " * 12,
        break_on_hyphens=False,
        break_long_words=False,
    )


def described() -> dict[str, str]:
    """Return each option, and the text that stands below it in `OptionKeywords`."""
    tree = ast.parse(TABLE.read_text())
    (keywords,) = (
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "OptionKeywords"
    )
    found: dict[str, str] = {}
    for field, text in zip(keywords.body, keywords.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str())):
                found[name] = " ".join(ast.literal_eval(text.value).split())
            case _:
                pass
    assert [*found] == [*NAMES], (
        "each option has a text in `OptionKeywords`, in the order of `Options`"
    )
    return found


def rows() -> str:
    """Return the rows of the page: name and link, what the option is for, its numbers."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    for i, name in enumerate(NAMES):
        option = OPTIONS[name]
        if not option.use:
            continue
        # An option without a row of its own stands in that of the one before it.
        also = [] if i + 1 == len(NAMES) or OPTIONS[NAMES[i + 1]].use else [NAMES[i + 1]]
        names = ", ".join(f"`{each}`" for each in (name, *also))
        link = f"[{names}](options/{name}.md){{ #{_ANCHORS.get(name, name)} }}"
        yield f"| {link} | {option.use} | {option.numbers} |"


if __name__ == "__main__":
    main()
