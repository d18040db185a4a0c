"""What each operation does along an axis, and what padding, chunks and streams do about it: `python
-m tests.axes._table` prints it, with `--write` into `docs/axes.md`.

All of it is asked of the rules: of each, what goes on from chunk to chunk (`Rule.across`), whether
it is done at once (`Rule.at_once`), and what it says of the operations in the bodies of
`_cases.py`, refusals among them. A new rule comes with its cases, and so into the table.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

from jitney._axes import Refused, trace, uses_of
from jitney._axes.interpreter import Op
from jitney._axes.rule import no_uses
from jitney._axes.rules import RULES
from jitney._jax.programs.jaxprs import equations
from jitney._jax.programs.primitives import CALLS, REMATS, public_name
from tests.axes import _cases as cases

PAGE = Path(__file__).parents[2] / "docs" / "axes.md"
BEGIN, END = (
    "<!-- the table of the rules: python -m tests.axes._table --write -->",
    "<!-- its end -->",
)
SIZE = 23
WAYS = {
    "Fold": "put together",
    "ArgExtreme": "place and element, put together",
    "Gather": "elements at positions, each from its chunk",
    "TopK": "the largest until now, merged",
    "ScatterInto": "each chunk written into the result",
    "Prefix": "goes on from chunk to chunk, from either end",
    "LoopCarry": "the state goes on from chunk to chunk, from either end",
}
AT_ONCE = "at once, on the whole (in a stream, if it is as small as `memory` allows)"
UNTIL_DONE = "each element until it is done, or as many turns as all together, counted first"
HOLDERS = (*CALLS, *REMATS, "jax.lax.cond", "call_hi_primitive", "custom_linear_solve")
F, S, V, M = cases.F, cases.SQUARE, cases.V, cases.M
_linalg: Any = jax.lax.linalg
PROBES = [  # along the axis, of what no case tries there
    cases.Case("", _linalg.cholesky, S),
    cases.Case("", _linalg.eigh, S),
    cases.Case("", _linalg.eig, S),
    cases.Case("", _linalg.lu, S),
    cases.Case("", _linalg.schur, S),
    cases.Case("", _linalg.hessenberg, S),
    cases.Case("", _linalg.tridiagonal, S),
    cases.Case("", lambda a, b: _linalg.triangular_solve(a, b, left_side=True), [*S, *M]),
    cases.Case("", lambda a, b: _linalg.tridiagonal_solve(a, a, a, b), [*V, *M]),
    cases.Case("", lambda a, b: _linalg.cholesky_update(a, b), [*S, *V]),
    cases.Case("", lambda a, b: _linalg.householder_product(a, b), [*M, ((3,), F)]),
    cases.Case("", lambda x: jax.lax.cummin(x), V),
    cases.Case("", lambda x: jax.lax.split(x, (2, x.shape[0] - 2)), V),
    cases.Case("", lambda x: jnp.unstack(x), V),
    cases.Case("", lambda x: jax.debug.print("{}", x), V),
    cases.Case("", lambda x: jax.debug.callback(print, x), V),
    cases.Case(
        "", lambda x: io_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x), V
    ),
    cases.Case(
        "", lambda x: jax.lax.reduce_window(x, np.float32(0), jax.lax.add, (2,), (1,), "SAME"), V
    ),
    cases.Case(
        "",
        lambda x: jax.lax.reduce_window(x, np.float32(np.inf), jax.lax.min, (2,), (1,), "SAME"),
        V,
    ),
    cases.Case("", lambda x: x.at[jnp.array([0, 1])].mul(x[:2]), V),
    cases.Case("", lambda x: x.at[jnp.array([0, 1])].min(x[:2]), V),
    cases.Case("", lambda x: jax.lax.dynamic_update_slice(x, x[:1], (2,)), V),
]
MANY = 12
UNTRIED = "along other axes"
# Operations of their own since jax 0.12, where the page is that of all versions; and numbers that
# Python computes, which are no operation of the user's.
BY_VERSION = {"unstack", "number_of_size"}


@dataclass
class Seen:
    """What the rule of an operation says of it in all cases: what it does along the axis, and what
    it refuses.
    """

    hows: dict[str, None] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)
    tried: bool = False  # on an array with the axis


def seen() -> dict[str, Seen]:
    """By operation."""
    out: dict[str, Seen] = defaultdict(Seen)
    ranges = {"d0": (SIZE, SIZE)}
    for case in (*cases.CASES, *cases.REFUSED, *PROBES):
        try:
            program = trace(case.flat, lambda sizes, case=case: case.avals(sizes["d0"]), ranges)
        except Refused:  # it needs to know the size
            continue
        for op in (Op(eqn, ranges) for eqn in equations(program.jaxpr)):
            if op.is_ragged and op.name in RULES:
                out[shown(op.name)].tried = True
        for use in uses_of(program.jaxpr, ranges):
            if use.op not in RULES:  # refused, since there is no rule
                continue
            about = out[shown(use.op)]
            (about.refused if use.refused else about.hows)[_said(use.refused or use.how)] = None
    return out


def _said(text: str) -> str:
    return text.replace("d0", "n").replace("|", "or")


def looks(name: str) -> bool:
    """Whether a rule has something to say of an axis; else each element is alone, or the rules of
    the program that is held say it.
    """
    return RULES[name].uses is not no_uses and public_name(name) not in HOLDERS


def rows() -> Iterator[tuple[list[str], str, str, str]]:
    """Operations of which the same is said; what they do along the axis; and what is done about it
    under `pad`, and in chunks.
    """
    about = seen()
    groups: dict[tuple[bool, str, str], list[str]] = defaultdict(list)
    for name in sorted(RULES.keys() - BY_VERSION, key=shown):
        mine = about[shown(name)]
        groups[looks(name), _padded(name, mine), _cut(name, mine)].append(name)
    for (along, pad, cut), names in groups.items():
        does = dict.fromkeys(how for name in names for how in about[shown(name)].hows)
        holds = all(public_name(name) in HOLDERS for name in names)
        each = "what is in it" if holds else "-" if along else "each element alone"
        yield list(dict.fromkeys(map(shown, names))), "; ".join(does) or each, pad, cut


def shown(name: str) -> str:
    return public_name(name.replace("scatter_", "scatter-"))  # JAX's name of it by the version


def _padded(name: str, about: Seen) -> str:
    unless = "; ".join(about.refused)
    if unless:
        return f"not where it {unless}" if about.hows else f"no: {unless}"
    return "yes" if about.tried or not looks(name) else UNTRIED


def _cut(name: str, about: Seen) -> str:
    rule = RULES[name]
    parts = [WAYS[type(rule.carrier).__name__]] if rule.carrier is not None else []
    parts += [AT_ONCE] if rule.at_once else []
    if parts:
        return "; else ".join(parts)
    if name == "while":
        return UNTIL_DONE
    if not looks(name):
        return "yes"
    if about.refused or about.hows:
        return f"no: {'; '.join((*about.refused, *about.hows))}"
    return "yes" if about.tried else UNTRIED


def table() -> str:
    """Markdown."""
    lines = [
        "| operation | along the axis | `pad` | `chunk`, `jitney.stream` |",
        "|---|---|---|---|",
    ]
    for names, *cells in rows():
        listed = ", ".join(f"`{name}`" for name in names[:MANY]) + (
            f" and {len(names) - MANY} more" if len(names) > MANY else ""
        )
        lines.append(f"| {listed} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page_with(text: str, printed: str) -> str:
    """The page, with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{printed}\n\n{END}{after}"


def main() -> int:
    jax.config.update("jax_platforms", "cpu")
    if "--write" in sys.argv:
        PAGE.write_text(page_with(PAGE.read_text(), table()))
        return 0
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
