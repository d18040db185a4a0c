"""Run the equal layers of a program as one loop, so that one of them is compiled and not all:
`roll="auto"`.

It stands outside all that changes the body, so that what it looks at is what will be compiled:
mapped, padded, in chunks, with casts. Only Saved stands outside of it, which is `remat="auto"`:
what is saved of a loop is chosen by its turns.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self

import equinox as eqx

from .. import _saving
from .._axes import at_any_size
from .._jax.trees import Tracer, is_a, tree_flatten, tree_unflatten
from .._signature.options import AUTO
from .._view.result import Outcome
from .._view.view import View
from .stage import Fn, Request, Skip, Stage

_eqx: Any = eqx
NONE = "no layers repeat that are worth a loop"
_LINES: ContextVar[dict[tuple[bool, str], None] | None] = ContextVar("rolled", default=None)


@contextmanager
def rolls() -> Generator[dict[tuple[bool, str], None]]:
    """Collect what is decided about layers of what is traced meanwhile: whether they were rolled,
    and why.
    """
    made: dict[tuple[bool, str], None] = {}
    token = _LINES.set(made)
    try:
        yield made
    finally:
        _LINES.reset(token)


@dataclass(frozen=True)
class Roll(Stage):
    """The program, with its equal layers as loops."""

    nested: bool
    why: str = field(compare=False)
    name: str = field(default="roll", compare=False)

    @classmethod
    def plan(cls, view: View, request: Request) -> Self | Skip:
        if request.options.roll != AUTO:
            return Skip("roll", "no `roll` given")
        return cls(
            request.nested,
            "equal layers as one loop, where it compiles much faster and runs as fast",
        )

    @property
    def scope(self) -> str:
        return ""  # each operation has its own

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        return rolling(fn, differentiated=self.nested)


def rolling(fn: Fn, *, differentiated: bool) -> Fn:
    """A function of flat arrays, with its equal layers as loops; whether it is to be
    differentiated.
    """

    def rolled(*arrays: Any) -> Sequence[Any]:
        if at_any_size() or not any(is_a(x, Tracer) for x in arrays):
            return fn(*arrays)  # nothing is compiled, or it is rolled where its size is known
        made = _saving.Rolled.of(fn, arrays, differentiated=differentiated)
        lines = _LINES.get()
        if lines is not None:
            lines.update(dict.fromkeys(made.lines))
        return made(arrays)

    return rolled


def rolling_tree(fn: Any) -> Any:
    """The same of a function of one tree of arrays that is differentiated, and whose result may
    hold anything.
    """

    def rolled(at: Any) -> Any:
        leaves, treedef = tree_flatten(at)
        form: Any = None
        rest: Any = None

        def flat(*arrays: Any) -> Any:
            nonlocal form, rest
            out, rest = _eqx.partition(fn(tree_unflatten(treedef, arrays)), _eqx.is_array)
            made, form = tree_flatten(out)
            return made

        made = rolling(flat, differentiated=True)(*leaves)
        return _eqx.combine(tree_unflatten(form, made), rest)

    return rolled
