"""How the source reads, in figures: `python -m tests.house`.

A line of the table is a figure, today's limit and the aim. It fails past a limit; a limit goes down
as the source gets better, and never up. Lint runs it.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "jitney"
LAYOUT = (
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
)
WORDS = ("What", "Whether", "Of", "That", "How", "As", "Where", "One", "All")
LONG = 100  # columns
Defines = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Figure:
    """One line of the table; `least` where more is better."""

    name: str
    value: float
    limit: float
    aim: float
    least: bool = False

    @property
    def is_past(self) -> bool:
        """Whether it is worse than its limit."""
        return self.value < self.limit if self.least else self.value > self.limit


def main() -> int:
    """Print the table; 1 if a figure is past its limit."""
    figures = list(measured(sorted(SOURCE.rglob("*.py"))))
    print(f"{'':<48}{'today':>10}{'limit':>10}{'aim':>10}")
    for figure in figures:
        past = "  past its limit" if figure.is_past else ""
        print(f"{figure.name:<48}{figure.value:>10.6g}{figure.limit:>10g}{figure.aim:>10g}{past}")
    return int(any(figure.is_past for figure in figures))


def measured(files: list[Path]) -> Iterator[Figure]:
    """Count the source: tokens without comments and docstrings, lines, names."""
    texts = [file.read_text() for file in files]
    lines = [line for text in texts for line in text.splitlines()]
    filled = sum(bool(line.strip()) for line in lines)
    tokens: list[tokenize.TokenInfo] = []
    code_lines = anys = 0
    docstrings: list[str] = []
    classes: defaultdict[str, set[Path]] = defaultdict(set)
    for file, text in zip(files, texts, strict=True):
        tree = ast.parse(text)
        found = list(_docstrings(tree))
        docstrings += [node.value for node in found]
        inside = {
            line
            for node in found
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        kept = [
            token
            for token in _tokens(text)
            if not (token.type == tokenize.STRING and token.start[0] in inside)
        ]
        code_lines += len({token.start[0] for token in kept})
        anys += sum(token.string == "Any" for token in kept)
        tokens += kept
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name.lstrip("_")].add(file)
    comments = sum(line.lstrip().startswith("#") for line in lines)
    begins = Counter((text.split() or [""])[0] for text in docstrings)
    yield Figure("tokens in a line of code", len(tokens) / code_lines, 8, 8)
    yield Figure(
        "percent of lines over 100 columns",
        100 * sum(len(line) > LONG for line in lines) / len(lines),
        0.3,
        0.3,
    )
    yield Figure("`# fmt: skip`", sum("# fmt: skip" in line for line in lines), 0, 0)
    yield Figure("percent of lines that are comments", 100 * comments / filled, 3, 3, least=True)
    yield Figure("`Any`", anys, 760, 1000)
    yield Figure(
        "docstrings that begin " + ", ".join(WORDS[:3]) + ", ...",
        sum(begins[word] for word in WORDS),
        60,
        60,
    )
    yield Figure(
        "class names for two or more ideas",
        sum(len(where) > 1 for where in classes.values()),
        8,
        8,
    )


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT and token.type != tokenize.COMMENT:
            yield token


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """The strings that document a module, a class, a function, or what stands above them."""
    for node in ast.walk(tree):
        for child in getattr(node, "body", []) if isinstance(node, Defines) else []:
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield child.value


if __name__ == "__main__":
    sys.exit(main())
