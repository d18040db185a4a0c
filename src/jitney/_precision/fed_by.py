"""Go through a program operation by operation, and know of each product which argument feeds it.

Both the autocast and the measurement of its error do that, so that they speak of the same products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._jax.evaluation import evaluated
from .._jax.jaxprs import at_line_of, bound, is_backward, opened, programs, source_of
from .policy import Tokens, written
from .products import LINEAR, MOVES, is_product, near_solves

_ARRAY = 1  # the path of an argument that is one array has one part


@dataclass(frozen=True)
class Label:
    """Where a value comes from.

    Args:
        path: Of the argument that it is, or of the module that made it; () if it has several makers
            that have nothing in common.
        leaf: Whether it is the argument itself, moved or cast.
        exact: Whether the annotation of that argument names its dtype.
    """

    path: Tokens
    leaf: bool = False
    exact: bool = False


NOWHERE = Label(())


@dataclass(frozen=True, eq=False)
class _Value:
    """A value of a program, and where it comes from.

    Args:
        data: It itself.
        label: Where it comes from.
        moved: What it was, if it was only moved.
        written: Whether it is a number that is written into the program.
    """

    data: Any
    label: Label
    moved: _Value | None = None
    written: bool = False

    @property
    def origin(self) -> _Value:
        """What it was before it was moved."""
        return self if self.moved is None else self.moved


@dataclass(frozen=True)
class Site:
    """One product in the source.

    Args:
        paths: Of what feeds it.
        source: Its line.
        stays: Why it is not cast, whatever the policy says.
        own: Whether a factor of it is an array of a module, whose path comes first then.
    """

    paths: tuple[Tokens, ...]
    source: str
    stays: str | None = None
    own: bool = False

    @property
    def key(self) -> str:
        """The exception to a policy that names it: the path of the array, or the line."""
        return written(self.paths[0]) if self.own else self.source.partition(" ")[0]


class Feeds(ABC):
    """One evaluation of a program."""

    def run(
        self, jaxpr: Any, operands: Sequence[Any], labels: Sequence[Label], seen_at: str = ""
    ) -> tuple[list[Any], list[Label]]:
        """The results of a program and where they come from; `seen_at` is the line of the operation
        that holds it.
        """
        return _Feeding(self, jaxpr, seen_at).go(operands, labels)

    def plain(self, eqn: Any, operands: Sequence[Any]) -> list[Any]:
        """The results of any other operation."""
        return bound(eqn, operands)

    def number(self, value: Any, aval: Any) -> Any:
        """The value of a number that is written into the program, where a value of some type is
        read.
        """
        del aval
        return value

    @abstractmethod
    def product(self, eqn: Any, operands: Sequence[Any], site: Site) -> list[Any]:
        """The results of a product."""

    @abstractmethod
    def other(
        self, eqn: Any, operands: Sequence[Any], labels: Sequence[Label], source: str
    ) -> tuple[list[Any], list[Label]] | None:
        """The results of an operation that holds programs; None for one that is taken as it is."""


class _Feeding:
    """One program, with what is known of its products."""

    def __init__(self, walk: Feeds, jaxpr: Any, seen_at: str):
        self.walk = walk
        self.jaxpr = jaxpr
        self.seen_at = seen_at
        self.near = near_solves(opened(jaxpr)[0])
        # a value -> the arguments that it was multiplied by
        self.feeds: dict[_Value, list[Tokens]] = {}

    def go(self, operands: Sequence[Any], labels: Sequence[Label]) -> tuple[list[Any], list[Label]]:
        constants = [_Value(data, NOWHERE) for data in opened(self.jaxpr)[1]]
        values = [_Value(data, label) for data, label in zip(operands, labels, strict=True)]
        out = evaluated(self.jaxpr, values, self.step, constants=constants, constant=self.number)
        return [value.data for value in out], [value.label for value in out]

    def number(self, data: Any, aval: Any, _: Any) -> _Value:
        return _Value(self.walk.number(data, aval), NOWHERE, written=True)

    def step(self, eqn: Any, inputs: list[_Value]) -> list[_Value]:
        operands, labels = [value.data for value in inputs], [value.label for value in inputs]
        if is_product(eqn):
            site = self.site(eqn, inputs)
            owners = [
                label.path[:-1] if label.leaf and len(label.path) > _ARRAY else label.path
                for label in labels[:2]
            ]
            deepest = (
                [path for path, label in zip(owners, labels, strict=False) if label.leaf]
                if _parameters(labels)
                else owners
            )
            with at_line_of(eqn):
                (out,) = self.walk.product(eqn, operands, site)
            return [_Value(out, joined([Label(path) for path in deepest]))]
        inside = (
            self.walk.other(eqn, operands, labels, source_of(eqn, self.seen_at))
            if programs(eqn.params)
            else None
        )
        if inside is not None:
            return [_Value(data, label) for data, label in zip(*inside, strict=True)]
        name = eqn.primitive.name
        origin = inputs[0].origin if name in MOVES else None
        if origin is not None:
            # the others are places
            labels = labels if name in ("concatenate", "select_n") else labels[:1]
        known = set(labels) - {NOWHERE}
        # a scaled weight is that weight
        label = known.pop() if len(known) == 1 and name in LINEAR else joined(labels)
        out = self.walk.plain(eqn, operands)
        return [_Value(data, label, origin if i == 0 else None) for i, data in enumerate(out)]

    def site(self, eqn: Any, inputs: Sequence[_Value]) -> Site:
        """What is known of a product."""
        factors, labels = (
            [value.origin for value in inputs[:2]],
            [value.label for value in inputs[:2]],
        )
        parameters, shared = _parameters(labels), list[Tokens]()
        if parameters:
            for factor in factors:
                if not factor.written:
                    self.feeds.setdefault(factor, []).extend(parameters)
            paths = parameters
        # an array, values of the program, or the product of a backward pass: its factor was
        # multiplied by something before
        else:
            known = [factor for factor in factors if not factor.written] if is_backward(eqn) else []
            shared = [path for factor in known for path in self.feeds.get(factor, ())]
            others = [label for label in labels if not label.leaf]
            leaves = [label.path for label in labels if label.leaf]
            paths = [*shared, *leaves] if shared else [*leaves, joined(others).path]
        exact = any(label.exact for label in labels)
        stays = (
            "its exact dtype is annotated"
            if exact
            else "a solve or factorisation is next to it"
            if eqn.outvars[0] in self.near
            else None
        )
        own = bool(parameters or shared)
        return Site(
            tuple(dict.fromkeys(path for path in paths if path)),
            source_of(eqn, self.seen_at),
            stays,
            own,
        )


def _parameters(labels: Sequence[Label]) -> list[Tokens]:
    """The paths of factors that are a module's own arrays."""
    return [label.path for label in labels[:2] if label.leaf and len(label.path) > _ARRAY]


def joined(labels: Sequence[Label]) -> Label:
    """What values of several origins have in common; arrays that are arguments of their own do not
    count beside modules.
    """
    paths = {label.path for label in labels if label.path}
    deep = {path for path in paths if len(path) > _ARRAY} or paths
    if len(deep) <= 1:
        return Label(next(iter(deep), ()))
    first, last = min(deep), max(deep)
    common = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
        min(len(first), len(last)),
    )
    return Label(first[:common])
