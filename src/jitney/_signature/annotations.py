"""Annotations of functions and classes read into data.

The input is a function or a class, the output is a `Hint` for each parameter or field (`ArrayHint`
and its siblings in `hints.py`). An annotation is resolved where it was written (`resolving.py`),
and then read (`type_hints.py`), so that nothing behind these files depends on how jaxtyping,
`typing` or NumPy represent a hint.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping

from .hints import AnyHint, ContainerHint, Hint, TreeHint, UnionHint, hint_text
from .resolving import (
    UNRESOLVED,
    class_scope,
    closure_of,
    innermost,
    raw_annotations,
    resolve,
    resolved_fields,
    rewrites,
)
from .type_hints import read


def hints_of(
    fn: Callable[..., object],
    namespace: Mapping[str, object] | None = None,
) -> tuple[dict[str, Hint], Hint, tuple[str, ...]]:
    """Hints of a function's parameters, the hint of its result, and the names of annotations that
    cannot be resolved (yet).

    `namespace` holds further names, such as the locals of the frame that decorates.
    """
    base, _ = innermost(fn)
    if rewrites(base):
        return _behind_a_transform(base)
    hints: dict[str, Hint] = {}
    unresolved: list[str] = []

    for name, raw, found in _resolved_hints(fn, namespace):
        # If only a part is missing, as in `list["Later"]`, the rest is read.
        if isinstance(found, Missing):
            hints[name] = (
                AnyHint(f"`{raw}` cannot be resolved: {found.error}")
                if isinstance(raw, str)
                else read(raw)
            )
            unresolved.append(name)
        else:
            hints[name] = read(found)

    result = hints.pop("return", AnyHint())

    # A call of a class returns an instance, and not what `__init__` is annotated with.
    if inspect.isclass(fn):
        result = AnyHint()
    return hints, result, tuple(unresolved)


@dataclasses.dataclass(frozen=True)
class Missing:
    """An annotation with an undefined name."""

    # The name of a parameter, or "return".
    of: str
    text: str
    error: Exception
    # A name of the module that is spelled like the missing one.
    near: str | None


def missing_in(
    fn: Callable[..., object],
    namespace: Mapping[str, object] | None = None,
) -> list[Missing]:
    """Annotations of a function that cannot be resolved, with the error of each."""
    return [found for _, _, found in _resolved_hints(fn, namespace) if isinstance(found, Missing)]


def _resolved_hints(
    fn: Callable[..., object],
    namespace: Mapping[str, object] | None,
) -> Iterator[tuple[str, object, object]]:
    """Triples of a name, its annotation as written, and the resolved annotation or a `Missing`."""
    base, owner = innermost(fn)
    known = getattr(base, "__globals__", {})
    scope = {
        **(namespace or {}),
        **closure_of(base),
        **class_scope(base, owner),
    }

    for name, raw in raw_annotations(base).items():
        try:
            yield name, raw, resolve(raw, known, scope)
        except UNRESOLVED as error:
            text = raw if isinstance(raw, str) else hint_text(raw)
            near: list[str] = []
            if isinstance(error, NameError) and error.name:
                near = difflib.get_close_matches(error.name, [*known, *scope], n=1)
            yield name, raw, Missing(name, text, error, near[0] if near else None)


def _behind_a_transform(fn: object) -> tuple[dict[str, Hint], Hint, tuple[str, ...]]:
    nothing = AnyHint("a JAX or Equinox transform stands between the annotations and the caller")
    hints: dict[str, Hint] = dict.fromkeys(raw_annotations(fn), nothing)
    return hints, hints.pop("return", AnyHint()), ()


def annotated_names(fn: Callable[..., object]) -> frozenset[str]:
    """Words in the annotations of a function, a superset of the names that they mention."""
    base, _ = innermost(fn)
    words: set[str] = set()
    for raw in raw_annotations(base).values():
        words.update(re.findall(r"\w+", str(raw)))
    return frozenset(words)


def fields_of(cls: type) -> Mapping[str, Hint]:
    """Hints of the annotated fields of a class, inherited ones included, each resolved in the scope
    of the class that declares it.
    """
    hints = _fields_of(cls)
    # A name that is missing may have been defined since.
    if any(map(_is_unresolved, hints.values())):
        return _fields_of.__wrapped__(cls)
    return hints


@functools.lru_cache(maxsize=4096)
def _fields_of(cls: type) -> Mapping[str, Hint]:
    raws = resolved_fields(cls)
    return types.MappingProxyType({name: read(raw) for name, raw in raws.items()})


def _is_unresolved(hint: Hint) -> bool:
    match hint:
        case AnyHint():
            return hint.is_unresolved
        case UnionHint(options=parts) | ContainerHint(items=parts):
            return any(map(_is_unresolved, parts))
        case TreeHint(leaf=leaf):
            return _is_unresolved(leaf)
        case _:
            return False
