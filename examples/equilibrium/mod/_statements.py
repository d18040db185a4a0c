"""Text to statements: comments out, cut at semicolons, blocks from their names to `end`."""

import re
from dataclasses import dataclass

from ._places import Line, Place, fail

# text in quotes and TeX names, in which nothing is a comment or a semicolon
_WHOLE = r"\"[^\"\n]*\"|'[^'\n]*'|\$[^$\n]*\$"
_COMMENT = re.compile(rf"({_WHOLE})|/\*.*?\*/|//[^\n]*|%[^\n]*", re.DOTALL)
_CUT = re.compile(rf"({_WHOLE})|;")
_WORD = re.compile(r"[A-Za-z_]\w*")
# lines of MATLAB that people leave without a semicolon
_BARE = re.compile(r"\s*(close all|clear( all)?|clc|clearvars|warning off|dynare\b.*)\s*$")
READ = ("model", "initval", "steady_state_model", "shocks")
# They say what to compute with a model, and not what it is.
COMPUTE = (
    "endval",
    "histval",
    "estimated_params",
    "estimated_params_init",
    "estimated_params_bounds",
    "estimated_params_remove",
    "observation_trends",
    "optim_weights",
    "osr_params_bounds",
    "conditional_forecast_paths",
    "homotopy_setup",
    "moment_calibration",
    "irf_calibration",
    "shock_groups",
    "init2shocks",
    "verbatim",
    "svar_identification",
)


@dataclass(frozen=True)
class Statement:
    """Text up to a semicolon, and the line on which it begins."""

    place: Place
    text: str

    @property
    def word(self) -> str:
        """The name that it begins with."""
        found = _WORD.match(self.text)
        return found.group() if found else ""

    @property
    def rest(self) -> str:
        """What follows that name."""
        return self.text[len(self.word) :].strip()


@dataclass(frozen=True)
class Block:
    """Statements between a name and `end`."""

    head: Statement
    body: tuple[Statement, ...]


def without_comments(text: str) -> str:
    """The same lines, without what stands behind `//` and `%` and between `/*` and `*/`."""

    def blank(found: re.Match[str]) -> str:
        return found.group(1) or "\n" * found.group().count("\n")

    return _COMMENT.sub(blank, text)


def statements(lines: list[Line]) -> list[Statement]:
    """All statements in order."""
    found: list[Statement] = []
    begun: Place | None = None
    text = ""
    for place, line in lines:
        if not text.strip() and _BARE.match(line):
            found.append(Statement(place, line.strip()))
            continue
        at = 0
        for cut in _CUT.finditer(line):
            if cut.group(1):
                continue
            piece, at = line[at : cut.start()], cut.end()
            begun = begun if text.strip() else place
            if (text + piece).strip():
                found.append(Statement(begun or place, (text + piece).strip()))
            text = ""
        piece = line[at:]
        if piece.strip() and not text.strip():
            begun, text = place, piece + "\n"
        elif text:
            text += piece + "\n"
    if text.strip():
        raise fail(
            begun or Place("", 0),
            f"{text.strip().splitlines()[0]!r} has no end.",
            "Statements end with a semicolon.",
            "add it.",
        )
    return found


def blocks(given: list[Statement]) -> list[Statement | Block]:
    """Statements, and blocks where some belong together."""
    found: list[Statement | Block] = []
    rest = iter(given)
    for head in rest:
        if head.word not in (*READ, *COMPUTE) or head.rest.startswith("="):
            found.append(head)
            continue
        body: list[Statement] = []
        for each in rest:
            if each.text == "end":
                break
            body.append(each)
        else:
            raise fail(
                head.place,
                f"block {head.word!r} has no end.",
                "It ends with `end;`.",
                "add it.",
            )
        found.append(Block(head, tuple(body)))
    return found


def names(declared: Statement) -> list[str]:
    """The names that a declaration lists, without TeX names and options."""
    if declared.rest.startswith("("):
        raise fail(
            declared.place,
            f"{declared.text.splitlines()[0]!r} has options.",
            "Variables with trends and in logarithms are not read.",
            "write the equations in stationary variables.",
        )
    bare = re.sub(r"\$[^$]*\$|\([^()]*\)", " ", declared.rest)
    listed = bare.replace(",", " ").split()
    for name in listed:
        if not _WORD.fullmatch(name):
            raise fail(
                declared.place,
                f"{name!r} is not a name.",
                "Declarations are names with spaces or commas between them.",
                "look for a missing semicolon.",
            )
    return listed
