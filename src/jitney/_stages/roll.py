"""Stage of `roll="auto"`: run identical layers of a program as one `scan`, so that one of them is
compiled instead of all.

Roll stands outside every stage that changes the body, so that it looks at the program that will be
compiled: mapped, padded, in chunks, with casts. Only AutoRemat (`remat="auto"`) stands outside of
it, because what is saved of a loop is chosen per iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import equinox as eqx

from .. import _remat
from .._axes import at_any_size
from .._jax.stand_ins import partition
from .._jax.trees import Tracer, tree_flatten, tree_unflatten
from .._jax.typed import Array
from .._signature.options import AUTO
from .._view.result import Outcome
from .._view.view import View
from .stage import Fn, Request, Skip, Stage

T = TypeVar("T")
NONE = "no layers repeat that are worth a loop"
_LINES: ContextVar[dict[tuple[bool, str], None] | None] = ContextVar("rolled", default=None)


@contextmanager
def rolls() -> Generator[dict[tuple[bool, str], None]]:
    """Collect the decisions about layers of what is traced meanwhile: whether they were rolled,
    and why.
    """
    lines: dict[tuple[bool, str], None] = {}
    token = _LINES.set(lines)
    try:
        yield lines
    finally:
        _LINES.reset(token)


@dataclass(frozen=True)
class Roll(Stage):
    """Program with its identical layers as loops."""

    nested: bool
    why: str = field(compare=False)
    name: str = field(default="roll", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        if request.options.roll != AUTO:
            return Skip("roll", "no `roll` given")
        return cls(
            request.nested,
            "equal layers as one loop, where it compiles much faster and runs as fast",
        )

    @property
    def scope(self) -> str:
        # Each operation keeps its own scope.
        return ""

    def wrap(self, fn: Fn, outcome: Outcome) -> Fn:
        return rolling(fn, differentiated=self.nested)


def rolling(fn: Fn, *, differentiated: bool) -> Fn:
    """Replace identical layers in a function of flat arrays by loops.

    Args:
        fn: Function of flat arrays.
        differentiated: Whether the result will be differentiated.
    """

    def rolled(*arrays: Array) -> Sequence[Array]:
        if at_any_size() or not any(isinstance(x, Tracer) for x in arrays):
            # Concrete arrays: nothing is compiled. Symbolic sizes: the layers are rolled when the
            # program is traced with known sizes.
            return fn(*arrays)
        function = _remat.RolledFunction.of(fn, arrays, differentiated=differentiated)
        lines = _LINES.get()
        if lines is not None:
            lines.update(dict.fromkeys(function.lines))
        return function(arrays)

    return rolled


def rolling_tree(fn: Callable[[T], object]) -> Callable[[T], Any]:
    """Apply `rolling` to a function of one pytree that will be differentiated.

    Leaves of the result that are not arrays pass by unchanged.
    """

    def rolled(at: T) -> object:
        leaves, treedef = tree_flatten(at)
        form: Hashable = None
        rest: object = None

        def flat(*arrays: Array) -> list[Array]:
            nonlocal form, rest
            result = fn(tree_unflatten(treedef, arrays))
            out, rest = partition(result, eqx.is_array)
            results, form = tree_flatten(out)
            return results

        results = rolling(flat, differentiated=True)(*leaves)
        return eqx.combine(tree_unflatten(form, results), rest)

    return rolled
