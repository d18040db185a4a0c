"""Warning about a static argument with many values, each of which is a program of its own.

Causes of retraces explain each new program; this file counts the values of an argument, and warns
with their cost and a remedy.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass

import jax
import numpy as np

from .._errors import RetraceWarning, Where, format_error
from .._owners import users_level
from .._signature.records import holds_array
from .._values.static_values import Opaque
from .._view.layout import Layout, static_text
from .retraces.remedies import for_positions

MANY = 8
"""Values of a static argument that are accepted without a word."""
FEW_NUMBERS = 2
"""The same for a number that no annotation calls static: it mostly is data."""


@dataclass
class _Seen:
    """Values of one argument so far.

    Args:
        keys: Keys of the values.
        before: Seconds of compiling before the second value came.
        warned: Whether the warning has been given.
    """

    keys: set[Hashable] = field(default_factory=set[Hashable])
    before: float = 0.0
    warned: bool = False


class Variety:
    """Values that each static argument of a function has taken."""

    def __init__(self, where: Where, positions: Sequence[str] = ()):
        self._where = where
        # Arguments that are static for the structure of a sparse derivative.
        self._positions = positions
        self._seen: dict[str, _Seen] = {}
        # Path of a number -> its values.
        self._numbers: dict[str, set[Hashable]] = {}

    def count(
        self,
        layout: Layout,
        leaves: Sequence[object],
        seconds: Callable[[], float],
    ) -> None:
        """Count the static values of a call that no program serves yet; warn once about an argument
        with more than MANY values.

        Args:
            layout: Layout of the call.
            leaves: Leaves of the call.
            seconds: Returns the seconds of tracing and compiling this function so far.
        """
        keys: dict[str, list[Hashable]] = {}
        examples: dict[str, list[tuple[str, object]]] = {}
        for i, key in zip(layout.static, layout.key(leaves), strict=True):
            argument, path = layout.names[i]
            leaf = leaves[i]
            # Whole numbers among the fields of a dataclass mostly are options.
            is_option = i in layout.record_of and type(leaf) is int
            numbers = {} if is_option else _numbers_of(leaf, path)
            if argument not in layout.declared and argument not in self._positions:
                for name, value in numbers.items():
                    self._note_number(argument, name, value, _advice_on_number(layout, i, leaf))
            keys.setdefault(argument, []).append((type(leaf), key))
            examples.setdefault(argument, []).append((path, leaf))

        # An argument with several static parts has the combinations of their values.
        for argument, parts in keys.items():
            seen = self._seen.setdefault(argument, _Seen())
            if not seen.warned:
                self._note_value(argument, seen, tuple(parts), examples[argument], seconds)

    def _note_number(
        self,
        argument: str,
        path: str,
        value: object,
        advice: str,
    ) -> None:
        values = self._numbers.setdefault(path, set())
        if len(values) > FEW_NUMBERS:
            return
        values.add(static_text(value))
        if len(values) <= FEW_NUMBERS:
            return
        # Its argument is not reported once more.
        self._seen.setdefault(argument, _Seen()).warned = True
        warnings.warn(
            format_error(
                self._where,
                f"static {path!r} takes its 3rd value, {static_text(value)}.",
                "Each value of a static number is a program of its own.",
                advice,
            ),
            RetraceWarning,
            stacklevel=users_level(),
        )

    def _note_value(
        self,
        argument: str,
        seen: _Seen,
        key: Hashable,
        examples: Sequence[tuple[str, object]],
        seconds: Callable[[], float],
    ) -> None:
        new = key not in seen.keys
        seen.keys.add(key)
        # Costs count from the second value on.
        if new and len(seen.keys) == 2:
            seen.before = seconds()
        if len(seen.keys) <= MANY:
            return
        seen.warned = True
        # The warning is given once, so the keys are not needed any more.
        seen.keys.clear()
        (_, example), *_ = examples
        value = example.value if isinstance(example, Opaque) else example
        what = (
            f"static {argument!r} takes its {MANY + 1}th value, {static_text(value)}; the"
            f" {MANY - 1} after the first have cost {seconds() - seen.before:.2g} s of tracing and"
            " compiling."
        )
        warnings.warn(
            format_error(
                self._where,
                what,
                "Each value of a static argument is a program of its own.",
                for_positions(argument)
                if argument in self._positions
                else _advice(argument, value),
            ),
            RetraceWarning,
            stacklevel=users_level(),
        )


def _numbers_of(leaf: object, path: str) -> dict[str, object]:
    """Numbers that a static leaf is, or has as fields of a dataclass that JAX has no tree for, by
    their paths.
    """
    if type(leaf) in (int, float, complex):
        return {path: leaf}
    if not is_dataclass(leaf) or isinstance(leaf, type):
        return {}
    known = {each.name: getattr(leaf, each.name, None) for each in fields(leaf)}
    return {
        f"{path}.{name}": value for name, value in known.items() if type(value) in (float, complex)
    }


def _advice_on_number(layout: Layout, i: int, value: object) -> str:
    argument, path = layout.names[i]
    if is_dataclass(value):
        return (
            f"register `{type(value).__name__}` with JAX (`@jax.tree_util.register_dataclass` above"
            " `@dataclass`): floats among its fields are traced then."
        )
    if i in layout.held:
        return (
            f"it is {layout.held[i]}: decide there with jnp.where or jax.lax.cond, or let it be the"
            " size of a named axis, if it is one."
        )
    kind = "Int" if isinstance(value, int) else "Float"
    if path != argument:
        return (
            f"make {path!r} an array where it is made, jnp.asarray(...), and annotate it"
            f' {kind}[Array, ""], if it has an annotation: arrays are traced.'
        )
    return (
        f'annotate {argument}: {kind}[ArrayLike, ""], if it is data: it is traced then. If it is a'
        " size, let it be that of a named axis, and share programs with `pad`."
    )


def _advice(argument: str, value: object) -> str:
    if callable(value):
        return (
            "if these are one function created again for each call (a lambda, a partial), make"
            f" {argument!r} once and pass that."
        )
    if isinstance(value, (str, bytes)):
        return (
            f"if the computation depends on {argument!r} in few ways, pass which of them; names can"
            " stay outside."
        )
    if holds_array(getattr(value, "__dict__", None)):
        return (
            f"make `{type(value).__name__}` an eqx.Module, so that its arrays are arguments of"
            " the program and no constants of it."
        )
    if isinstance(value, (int, float, complex)):
        return (
            f'pass {argument!r} as an array, annotated `Int[Array, ""]` or `Float[Array, ""]`; if'
            " it is a size, let it be the size of a named axis and share programs with `pad`."
        )
    if isinstance(value, (np.ndarray, jax.Array)):
        return f"take {argument!r} out of `static`: arrays are traced."
    if not isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return (
            f"pass what varies among the fields of {argument!r} as an argument of its own, an"
            " array, or make their class an eqx.Module."
        )
    if any(map(callable, value.values() if isinstance(value, Mapping) else value)):
        return (
            "if its functions are created again for each call (lambdas, partials), make them once"
            f" and pass {argument!r} with those."
        )
    return (
        f"pass {argument!r} as data: sets and lists of indices as an index array with a mask, and"
        " let `pad` share programs between their sizes."
    )
