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

from .._jax.programs.evaluation import interpret
from .._jax.programs.jaxprs import at_line_of, is_backward, open_jaxpr, programs, rebind, source_of
from .._jax.typed import AnyJaxpr, Array, Aval, JaxprEqn
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

Labelled = tuple[list[Array], list[Label]]
"""Results of a program or an equation, and the label of each."""


@dataclass(frozen=True, eq=False)
class _LabelledValue:
    """Value of a program, with its origin.

    Args:
        data: The array.
        label: Origin.
        moved: Value before it was rearranged, if it was only rearranged.
        written: True if it is a literal of the program.
    """

    data: Array
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
        self,
        jaxpr: AnyJaxpr,
        operands: Sequence[Array],
        labels: Sequence[Label],
        seen_at: str = "",
    ) -> Labelled:
        """Evaluate a program; return its results and their labels.

        `seen_at` is the line of the equation that holds the program.
        """
        return _Feeding(self, jaxpr, seen_at).go(operands, labels)

    def plain(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
    ) -> list[Array]:
        """Results of an equation that is neither a product nor holds programs."""
        return rebind(eqn, operands)

    def number(self, value: Any, aval: Aval) -> Array:
        """Value of a literal, where a value with this abstract value is read."""
        del aval
        return value

    @abstractmethod
    def product(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        site: ProductSite,
    ) -> list[Array]:
        """Results of a product."""

    @abstractmethod
    def evaluate_nested(
        self,
        eqn: JaxprEqn,
        operands: Sequence[Array],
        labels: Sequence[Label],
        source: str,
    ) -> Labelled | None:
        """Results of an equation that holds programs; None to bind it as it is."""


class _Feeding:
    """Evaluation of one program, with its products."""

    def __init__(
        self,
        walk: ProductInterpreter,
        jaxpr: AnyJaxpr,
        seen_at: str,
    ):
        self.walk = walk
        self.jaxpr = jaxpr
        self.seen_at = seen_at
        self.near = near_solves(open_jaxpr(jaxpr)[0])
        # Value -> paths of the module arrays that it was multiplied by.
        self.feeds: dict[_LabelledValue, list[Tokens]] = {}

    def go(
        self,
        operands: Sequence[Array],
        labels: Sequence[Label],
    ) -> Labelled:
        _, constants = open_jaxpr(self.jaxpr)
        results = interpret(
            self.jaxpr,
            [_LabelledValue(data, label) for data, label in zip(operands, labels, strict=True)],
            self.step,
            constants=[_LabelledValue(data, NOWHERE) for data in constants],
            constant=self.number,
        )
        return _split_labels(results)

    def number(
        self,
        data: Any,
        aval: Aval,
        _: object,
    ) -> _LabelledValue:
        return _LabelledValue(self.walk.number(data, aval), NOWHERE, written=True)

    def step(
        self,
        eqn: JaxprEqn,
        inputs: list[_LabelledValue],
    ) -> list[_LabelledValue]:
        if is_product(eqn):
            return [self.product(eqn, inputs)]

        operands, labels = _split_labels(inputs)
        if programs(eqn.params):
            source = source_of(eqn, self.seen_at)
            inside = self.walk.evaluate_nested(eqn, operands, labels, source)
            if inside is not None:
                return [_LabelledValue(data, label) for data, label in zip(*inside, strict=True)]

        # Other equations pass labels on.
        name = eqn.primitive.name
        if name == "optimization_barrier":
            return [
                _LabelledValue(data, value.label, value.origin)
                for data, value in zip(self.walk.plain(eqn, operands), inputs, strict=True)
            ]
        origin = None
        if name in MOVES:
            moved = _data_of(name, inputs)
            labels = [value.label for value in moved]
            origins = {value.origin for value in moved}
            # Numbers of two arrays are a value of their own.
            origin = origins.pop() if len(origins) == 1 else None
        label = _label_of_results(name, labels)
        results: list[_LabelledValue] = []
        for data in self.walk.plain(eqn, operands):
            # Only the first result is the data of the operand.
            results.append(_LabelledValue(data, label, None if results else origin))
        return results

    def product(
        self,
        eqn: JaxprEqn,
        inputs: Sequence[_LabelledValue],
    ) -> _LabelledValue:
        operands, labels = _split_labels(inputs)
        site = self.site(eqn, inputs)

        # If a module's own array is a factor, the module of that array decides.
        deciding = labels[:2]
        if _parameters(labels):
            deciding = [label for label in deciding if label.leaf]
        modules = [Label(_owner(label)) for label in deciding]

        with at_line_of(eqn):
            (out,) = self.walk.product(eqn, operands, site)
        return _LabelledValue(out, join_labels(modules))

    def site(
        self,
        eqn: JaxprEqn,
        inputs: Sequence[_LabelledValue],
    ) -> ProductSite:
        """Paths, line and restrictions of a product."""
        factors = [value.origin for value in inputs[:2]]
        labels = [value.label for value in inputs[:2]]
        parameters = _parameters(labels)
        shared: list[Tokens] = []
        if parameters:
            for factor in factors:
                if not factor.written:
                    self.feeds.setdefault(factor, []).extend(parameters)
            paths = parameters
        # No factor is a module's array. In a backward pass one factor was multiplied by an array in
        # the forward pass, and the product counts as that array's. Otherwise it is fed by plain
        # arguments and by modules.
        else:
            if is_backward(eqn):
                shared = self.forward_paths(factors)
            leaves = [label.path for label in labels if label.leaf]
            computed = join_labels([label for label in labels if not label.leaf])
            paths = [*shared, *leaves] if shared else [*leaves, computed.path]

        stays = None
        if any(label.exact for label in labels):
            stays = "its exact dtype is annotated"
        elif eqn.outvars[0] in self.near:
            stays = "a solve or factorisation is next to it"
        return ProductSite(
            tuple(dict.fromkeys(filter(None, paths))),
            source_of(eqn, self.seen_at),
            stays,
            own=bool(parameters or shared),
        )

    def forward_paths(self, factors: Sequence[_LabelledValue]) -> list[Tokens]:
        """Paths of the module arrays that these factors were multiplied by before."""
        paths: list[Tokens] = []
        for factor in factors:
            if not factor.written:
                paths += self.feeds.get(factor, ())
        return paths


def _split_labels(values: Sequence[_LabelledValue]) -> Labelled:
    """Split values into their data and their labels."""
    return [value.data for value in values], [value.label for value in values]


def _label_of_results(name: str, labels: Sequence[Label]) -> Label:
    # A weight that is scaled by a value of no origin is still that weight.
    known = set(labels) - {NOWHERE}
    if len(known) == 1 and name in LINEAR:
        return known.pop()
    return join_labels(labels)


def _owner(label: Label) -> Tokens:
    """Module of a value: the path of an array of a module, without its last part."""
    if label.leaf and len(label.path) > _ARRAY:
        return label.path[:-1]
    return label.path


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
    common = 0
    for a, b in zip(first, last, strict=False):
        if a != b:
            break
        common += 1
    return Label(first[:common])
