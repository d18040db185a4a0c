"""A program as source text: it is what runs, what is printed, and what is shrunk."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import _infinite, _libraries, _overlaps, _sizes, _structure

HEADER = """import copy, math, numbers, operator
from fractions import Fraction
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Shaped
"""
_NAMESPACE: dict[str, Any] = {}


@dataclass(frozen=True)
class Program:
    """Lines that each bind a name, of arguments with named axes.

    Args:
        takes: Argument -> its axes as jaxtyping writes them, "n 3".
        lines: (name, expression).
        gives: The names that are returned.
    """

    takes: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str, str], ...]
    gives: tuple[str, ...]
    bare: bool = False  # whether the one result is returned as it is, not as a tuple

    def pruned(self) -> Program:
        """Without lines and arguments that no result needs."""
        needed, kept = set(self.gives), list[tuple[str, str]]()
        for name, text in reversed(self.lines):
            if name in needed:
                kept.append((name, text))
                needed |= names_in(text)
        return replace(
            self,
            lines=tuple(reversed(kept)),
            takes=tuple(each for each in self.takes if each[0] in needed),
        )

    def only(self, *gives: str) -> Program:
        """The same with fewer results."""
        return replace(self, gives=gives).pruned()

    def number(self) -> Program:
        """One number made of all floating results, each element bent, so that its slope depends on
        its value.
        """
        text = (
            "sum(jnp.sum(jnp.sin(leaf).astype(jnp.float32)) for leaf in"
            f" jax.tree.leaves(({', '.join(self.gives)},)) if is_float(leaf))"
        )
        return replace(self, lines=(*self.lines, ("total", text)), gives=("total",), bare=True)

    def floats(self, form: str) -> Program:
        """All floating results, as a tree: one by itself, by name, or beside None."""
        text = f"[leaf for leaf in jax.tree.leaves(({', '.join(self.gives)},)) if is_float(leaf)]"
        shape = {
            "bare": "kept[0] if len(kept) == 1 else tuple(kept)",
            "dict": "{'a': kept, 'b': ()}",
            "none": "(None, kept)",
        }[form]
        return replace(
            self,
            lines=(*self.lines, ("kept", text), ("shaped", shape)),
            gives=("shaped",),
            bare=True,
        )

    def number_and_rest(self) -> Program:
        """The number, and all results beside it."""
        made = self.number()
        return replace(
            made,
            lines=(
                *made.lines,
                ("both", f"(total, {{'rest': ({', '.join(self.gives)},), 'none': None}})"),
            ),
            gives=("both",),
        )

    def source(self, name: str = "f") -> str:
        """The function alone."""
        arguments = ", ".join(f'{each}: Shaped[Array, "{axes}"]' for each, axes in self.takes)
        body = "".join(f"    {each} = {text}\n" for each, text in self.lines)
        return (
            f"def {name}({arguments}):\n{body}    return"
            f" {', '.join(self.gives)}{',' if len(self.gives) == 1 and not self.bare else ''}\n"
        )

    @property
    def prelude(self) -> str:
        """The definitions that its lines need."""
        words = {word for _, text in self.lines for word in names_in(text)}
        found = [
            part
            for part in PRELUDES
            if words & set(re.findall(r"^(?:def |)(\w+)[(.]", part, re.MULTILINE))
        ]
        return "\n\n\n".join(part.strip() for part in found) + ("\n\n\n" if found else "")

    def compiled(self, file: str = "hunted.py") -> Callable[..., Any]:
        """The function, of a file of its own, as a user's would be."""
        text = HEADER + PRELUDE + self.source()
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        namespace: dict[str, Any] = {"__name__": "hunted"}
        exec(compile(text, file, "exec"), namespace)
        return namespace["f"]


_FLOAT = """
def is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)
"""
PRELUDE = (
    "\n\n"
    + _FLOAT
    + "\n\n"
    + _structure.PRELUDE
    + "\n"
    + _sizes.PRELUDE
    + "\n"
    + _libraries.PRELUDE
    + "\n\n"
    + _infinite.PRELUDE
    + "\n\n"
    + _overlaps.PRELUDE
    + "\n\n"
)
PRELUDES = re.split(r"\n\n\n+", PRELUDE.strip())


def names_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", text))


def evaluated(text: str, values: Mapping[str, Any]) -> Any:
    """One expression, of values or of abstract ones under a trace."""
    if not _NAMESPACE:
        exec(compile(HEADER + PRELUDE, "hunted.py", "exec"), _NAMESPACE)
    # one namespace: what stands inside a lambda is looked up among globals alone
    return eval(text, {**_NAMESPACE, **values})


def joined(programs: Sequence[Program]) -> Program:
    """Several programs as one; their lines have names of their own."""
    takes = dict(each for program in programs for each in program.takes)
    found = {name: text for program in programs for name, text in program.lines}
    return Program(
        tuple(sorted(takes.items())),
        tuple(found.items()),
        tuple(give for program in programs for give in program.gives),
    )
