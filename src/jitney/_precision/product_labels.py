"""Interpreter of jaxprs that tracks which argument or module feeds each matrix product.

The autocast and the measurement of its error both derive from it, so that they refer to the same
products. Next to its data each value has a `Label`: the path of the argument that it comes from.

    h = dot_general x model.layers[0].weight     label of h: ("model", "layers", "0")
    y = tanh h                                   label of y: ("model", "layers", "0")
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from .._jax.evaluation import interpret
from .._jax.jaxprs import at_line_of, bound, is_backward, opened, programs, source_of
from .._jax.typed import Aval, JaxprEqn
from .policy import Tokens, path_text
from .products import LINEAR, MOVES, is_product, near_solves

# Length of the path of an argument that is a single array.
_ARRAY = 1


@dataclass(frozen=True)
class Label:
    """Origin of a value.

    Args:
        path: Path of the argument that the value is, or of the module that computed it; () if
            several modules computed it that have no path in common.
        leaf: True if the value is the argument itself, moved or cast.
        exact: True if the annotation of that argument names its dtype.
    """

    path: Tokens
    leaf: bool = False
    exact: bool = False


NOWHERE = Label(())


@dataclass(frozen=True, eq=False)
class _LabelledValue:
    """Value of a program, with its origin.

    Args:
        data: The array.
        label: Origin.
        moved: Value before it was rearranged, if it was only rearranged.
        written: True if it is a literal of the program.
    """

    data: Any
    label: Label
    moved: _LabelledValue | None = None
    written: bool = False

    @property
    def origin(self) -> _LabelledValue:
        """Value before it was rearranged."""
        return self if self.moved is None else self.moved


@dataclass(frozen=True)
class ProductSite:
    """Product in the source.

    Args:
        paths: Paths of the arguments and modules that feed it.
        source: Its line.
        stays: Reason why it is not cast, whatever the policy; None if it may be.
        own: True if a factor is an array of a module, whose path then comes first.
    """

    paths: tuple[Tokens, ...]
    source: str
    stays: str | None = None
    own: bool = False

    @property
    def key(self) -> str:
        """Exception of a policy that names this product: the path of the array, or the line."""
        return path_text(self.paths[0]) if self.own else self.source.partition(" ")[0]


class ProductInterpreter(ABC):
    """Interface of an evaluation with labels: subclasses decide what is done with products and
    control flow.
    """

    def run(
        self, jaxpr: object, operands: Sequence[object], labels: Sequence[Label], seen_at: str = ""
    ) -> tuple[list[Any], list[Label]]:
        """Evaluate a program; return its results and their labels.

        `seen_at` is the line of the equation that holds the program.
        """
        return _Feeding(self, jaxpr, seen_at).go(operands, labels)

    def plain(self, eqn: JaxprEqn, operands: Sequence[jax.Array]) -> list[Any]:
        """Results of an equation that is neither a product nor holds programs."""
        return bound(eqn, operands)

    def number(self, value: object, aval: Aval) -> Any:
        """Value of a literal, where a value with this abstract value is read."""
        del aval
        return value

    @abstractmethod
    def product(self, eqn: JaxprEqn, operands: Sequence[jax.Array], site: ProductSite) -> list[Any]:
        """Results of a product."""

    @abstractmethod
    def other(
        self, eqn: JaxprEqn, operands: Sequence[jax.Array], labels: Sequence[Label], source: str
    ) -> tuple[list[Any], list[Label]] | None:
        """Results of an equation that holds programs; None to bind it as it is."""


class _Feeding:
    """Evaluation of one program, with its products."""

    def __init__(self, walk: ProductInterpreter, jaxpr: Any, seen_at: str):
        self.walk = walk
        self.jaxpr = jaxpr
        self.seen_at = seen_at
        self.near = near_solves(opened(jaxpr)[0])
        # Value -> paths of the module arrays that it was multiplied by.
        self.feeds: dict[_LabelledValue, list[Tokens]] = {}

    def go(
        self, operands: Sequence[object], labels: Sequence[Label]
    ) -> tuple[list[Any], list[Label]]:
        constants = [_LabelledValue(data, NOWHERE) for data in opened(self.jaxpr)[1]]
        values = [_LabelledValue(data, label) for data, label in zip(operands, labels, strict=True)]
        out = interpret(self.jaxpr, values, self.step, constants=constants, constant=self.number)
        return [value.data for value in out], [value.label for value in out]

    def number(self, data: object, aval: Aval, _: object) -> _LabelledValue:
        return _LabelledValue(self.walk.number(data, aval), NOWHERE, written=True)

    def step(self, eqn: JaxprEqn, inputs: list[_LabelledValue]) -> list[_LabelledValue]:
        operands, labels = [value.data for value in inputs], [value.label for value in inputs]
        if is_product(eqn):
            site = self.site(eqn, inputs)
            # The module is the owner of an array: the path without its last part.
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
            return [_LabelledValue(out, join_labels([Label(path) for path in deepest]))]
        inside = (
            self.walk.other(eqn, operands, labels, source_of(eqn, self.seen_at))
            if programs(eqn.params)
            else None
        )
        if inside is not None:
            return [_LabelledValue(data, label) for data, label in zip(*inside, strict=True)]
        # Other equations pass labels on.
        name = eqn.primitive.name
        if name == "optimization_barrier":
            out = self.walk.plain(eqn, operands)
            return [
                _LabelledValue(data, value.label, value.origin)
                for data, value in zip(out, inputs, strict=True)
            ]
        origin = None
        if name in MOVES:
            moved = _data_of(name, inputs)
            labels = [value.label for value in moved]
            origins = {value.origin for value in moved}
            # Numbers of two arrays are a value of their own.
            origin = origins.pop() if len(origins) == 1 else None
        known = set(labels) - {NOWHERE}
        # A weight that is scaled by a value of no origin is still that weight.
        label = known.pop() if len(known) == 1 and name in LINEAR else join_labels(labels)
        out = self.walk.plain(eqn, operands)
        return [
            _LabelledValue(data, label, origin if i == 0 else None) for i, data in enumerate(out)
        ]

    def site(self, eqn: JaxprEqn, inputs: Sequence[_LabelledValue]) -> ProductSite:
        """Paths, line and restrictions of a product."""
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
        # No factor is a module's array. In a backward pass one factor was multiplied by an array in
        # the forward pass, and the product counts as that array's. Otherwise it is fed by plain
        # arguments and by modules.
        else:
            known = [factor for factor in factors if not factor.written] if is_backward(eqn) else []
            shared = [path for factor in known for path in self.feeds.get(factor, ())]
            others = [label for label in labels if not label.leaf]
            leaves = [label.path for label in labels if label.leaf]
            paths = [*shared, *leaves] if shared else [*leaves, join_labels(others).path]
        exact = any(label.exact for label in labels)
        stays = (
            "its exact dtype is annotated"
            if exact
            else "a solve or factorisation is next to it"
            if eqn.outvars[0] in self.near
            else None
        )
        own = bool(parameters or shared)
        return ProductSite(
            tuple(dict.fromkeys(path for path in paths if path)),
            source_of(eqn, self.seen_at),
            stays,
            own,
        )


def _data_of(name: str, inputs: Sequence[_LabelledValue]) -> Sequence[_LabelledValue]:
    """Return the operands whose numbers a move puts into its result; the others are positions,
    predicates and filler.
    """
    match name:
        case "concatenate":
            return inputs
        case "select_n":
            return inputs[1:]
        case "dynamic_update_slice":
            return inputs[:2]
        case _:
            return inputs[:1]


def _parameters(labels: Sequence[Label]) -> list[Tokens]:
    """Paths of the factors that are a module's own arrays."""
    return [label.path for label in labels[:2] if label.leaf and len(label.path) > _ARRAY]


def join_labels(labels: Sequence[Label]) -> Label:
    """Join of labels: the longest common prefix of their paths.

    Paths of plain array arguments are ignored if there are paths of modules.
    """
    paths = {label.path for label in labels if label.path}
    deep = {path for path in paths if len(path) > _ARRAY} or paths
    if len(deep) <= 1:
        return Label(next(iter(deep), ()))
    # In sorted order the first and the last path have the shortest common prefix.
    first, last = min(deep), max(deep)
    common = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b),
        min(len(first), len(last)),
    )
    return Label(first[:common])
