"""Derivatives of a function, as functions of the same arguments: bodies of programs of their own.

A derivative is not a stage inside the program of its function, since its results are others. It is
the body of another program, with the options of the function around it. So the derivative itself is
padded, cut into chunks or mapped, and `remat` stands inside it.

    f.grad             ->  a program whose body is Derived(f, "grad", ...)
    Derived.__call__   ->  bind the arguments, split them into `at` (differentiated) and the rest,
                           then one method of `_Derivation` per kind: `_grad`, `_jacobian`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from inspect import BoundArguments, Signature
from inspect import Parameter as Kind
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import InconclusiveDimensionOperation

from .. import _axes, _sparsity
from .._axes import Refused, at_any_size, ranges_at_hand
from .._contract.contract import Contract, Parameter, contract_of
from .._errors import DerivativeError, Where, name_fix, repr_of, shortlist
from .._host.own_time import OWN_TIME
from .._jax.programs.linearized import Linear, fitting
from .._jax.programs.primitives import public_name
from .._jax.sparse_arrays import bcoo
from .._jax.stand_ins import partition
from .._jax.trees import (
    Path,
    issubdtype,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)
from .._jax.typed import Array
from .._jax.xla.memory import free_bytes
from .._signature.binding import Binder, signature_of, where_of
from .._signature.hints import AnyHint
from .._signature.options import AUTO, VmapAxis
from .._signature.paths import root_of
from .._signature.policies import RematPolicy, policy_function
from .._sparsity import REVERSE, WAYS, Mode, PassMode
from .auto_remat import choose_residuals
from .remat import remat_to_fit
from .roll import rolling_tree

What = Literal[
    "grad",
    "value_and_grad",
    "jacobian",
    "value_and_jacobian",
    "hessian",
    "jvp",
    "vjp",
    "hvp",
    "linearize",
]
JACOBIANS = ("jacobian", "value_and_jacobian", "hessian")
"""Kinds that several passes make."""
Arguments = Mapping[str, Any]
"""Arguments that are differentiated, by name; pytrees of arrays."""
Primal = Callable[[Arguments], object]
"""The function, of the differentiated arguments alone."""
T = TypeVar("T")
_WITH_AUX = 2
_BACKWARD = "one scalar: one backward pass"
TANGENT, COTANGENT = "tangent_of_", "cotangent"


@dataclass(frozen=True)
class Decision:
    """Mode of a derivative, with the reason, and the directions of a dense Jacobian.

    Args:
        mode: The mode.
        why: The reason.
        directions: How many there are; 0 where they are not cut.
        at_a_time: How many run at a time; None for all.
    """

    mode: str
    why: str
    directions: int = 0
    at_a_time: int | None = None


# The `id`s of traced numbers that no annotation calls real: a derivative is with respect to arrays.
_NUMBERS: ContextVar[frozenset[int]] = ContextVar("numbers", default=frozenset())


@contextmanager
def with_numbers(numbers: Iterable[object]) -> Generator[None]:
    """Scope of a trace in which these values are Python numbers of the caller's."""
    token = _NUMBERS.set(frozenset(map(id, numbers)))
    try:
        yield
    finally:
        _NUMBERS.reset(token)


def _is_real(leaf: object, named: Container[int] = ()) -> bool:
    """Return whether a leaf is a floating-point array, and no number of the caller's except for
    those with an `id` in `named`.
    """
    return eqx.is_inexact_array(leaf) and (id(leaf) in named or id(leaf) not in _NUMBERS.get())


_DECISIONS: ContextVar[list[Decision] | None] = ContextVar("decisions", default=None)


@contextmanager
def decisions() -> Generator[list[Decision]]:
    """Collect the decisions about derivatives that are traced meanwhile."""
    collected: list[Decision] = []
    token = _DECISIONS.set(collected)
    try:
        yield collected
    finally:
        _DECISIONS.reset(token)


KEYWORDS = {
    **{
        name: f"set it on the function: jitney.lazy_derivatives({name}=...)(f)."
        for name in ("sparse", "mode", "skip")
    },
    "argnums": 'say with respect to what by name: wrt="x".',
}
"""Keywords that derivatives do not take, with a hint at the right one."""
KEYWORDS_OF_DERIVATIVES = {
    "wrt": 'derivatives take it, as f.grad(..., wrt="x").',
    "has_aux": "f.grad and f.value_and_grad take it.",
}
"""Keywords that functions do not take, with a hint at the derivatives that do."""


@dataclass(frozen=True)
class Derived:
    """Derivative of a function. Called with the function's arguments, and with directions by
    keyword.

    Args:
        fn: The function.
        what: Kind of derivative.
        wrt: Arguments to differentiate with respect to; None for all that hold floating-point
            arrays.
        skip: Arguments that None leaves out.
        single: True if the result is that of one argument, instead of a dict by name.
        mode: Mode of a Jacobian.
        sparse: True if Jacobians and Hessians are BCOO arrays.
        memory: Bytes that it may take, or "auto". A Jacobian takes as many directions at a time as
            fit; a gradient recomputes residuals.
        remat: Policy of `jax.checkpoint_policies` for the function, or "auto": save what fits into
            `memory`.
        aux: True if the function returns its number and something else, which is handed on:
            `((value, aux), grad)`, or `(grad, aux)`.
        summed: True if the function has to be a sum along the axis whose size is symbolic while
            this is traced.
        plain: True if JAX's own transformations compute it, dense.
        roll: "auto" if identical layers become a loop before the function is differentiated.
        positions: Arguments that are static for the structure of a sparse derivative.
        at_a_time: Directions of a dense Jacobian at a time; None for all, or what `memory` says.
        tried: Directions of a dense Jacobian that are computed, to time them; None for all.
    """

    fn: Callable[..., object]
    what: What
    wrt: tuple[str, ...] | None
    skip: tuple[str, ...] = ()
    single: bool = False
    mode: Mode = "auto"
    sparse: bool = False
    memory: int | str | None = None
    remat: str | RematPolicy | None = None
    aux: bool = False
    summed: bool = False
    plain: bool = False
    roll: str | None = None
    positions: tuple[str, ...] = ()
    at_a_time: int | None = None
    tried: int | None = None

    def __post_init__(self) -> None:
        for name in ("__name__", "__qualname__"):
            of_function = getattr(self.fn, name, type(self.fn).__name__)
            object.__setattr__(self, name, f"{of_function}.{self.what}")
        for name in ("__module__", "__doc__"):
            object.__setattr__(self, name, getattr(self.fn, name, None))
        object.__setattr__(self, "__wrapped__", self.fn)
        object.__setattr__(self, "__signature__", self._with_directions(signature_of(self.fn)))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return Derived, tuple(getattr(self, item.name) for item in fields(self))

    @property
    def where(self) -> Where:
        where = where_of(self.fn)
        return replace(where, name=f"{where.name}.{self.what}")

    @property
    def directions(self) -> tuple[str, ...]:
        """Parameters in addition to those of the function: tangents or a cotangent."""
        if self.what in ("jvp", "hvp"):
            return tuple(TANGENT + name for name in self.wrt or ())
        return (COTANGENT,) if self.what == "vjp" else ()

    def _with_directions(self, signature: Signature) -> Signature:
        parameters = list(signature.parameters.values())
        # Keyword-only parameters have to stand before `**kwargs`.
        at = _end_of_parameters([parameter.kind for parameter in parameters])
        parameters[at:at] = [Kind(name, Kind.KEYWORD_ONLY) for name in self.directions]
        return signature.replace(parameters=parameters, return_annotation=Signature.empty)

    def contract(self, namespace: Mapping[str, object] | None) -> Contract:
        """Contract of the function, extended by its directions.

        A direction has the annotation of its primal; the result has none.
        """
        plain = contract_of(self.fn, signature_of(self.fn), self.where, namespace)
        hints = {TANGENT + parameter.name: parameter.hint for parameter in plain.parameters}
        hints[COTANGENT] = plain.result
        parameters = list(plain.parameters)
        at = _end_of_parameters([parameter.kind for parameter in parameters])
        parameters[at:at] = [
            Parameter(name, Kind.KEYWORD_ONLY, hints[name], has_default=False)
            for name in self.directions
        ]
        result = AnyHint("the result of a derivative")
        return replace(plain, parameters=tuple(parameters), result=result)

    def __call__(
        self,
        /,
        *args: object,
        **kwargs: object,
    ) -> Any:
        directions = {name: kwargs.pop(name) for name in self.directions}
        bound = signature_of(self.fn).bind(*args, **kwargs)
        bound.apply_defaults()
        return _Derivation(self, bound, directions).make()


def with_directions(
    axes: tuple[VmapAxis, ...],
    directions: Sequence[str],
) -> tuple[VmapAxis, ...]:
    """Mapped axes in the dict form, of the directions too: a tangent has the axis where its primal
    has it, and a cotangent in front, as the result.
    """
    extended: list[VmapAxis] = []
    for axis in axes:
        dims = list(axis.dims or ())
        for direction in directions:
            if direction == COTANGENT:
                dims.append((direction, 0))
            else:
                primal = direction.removeprefix(TANGENT)
                dims += [
                    (TANGENT + path, position)
                    for path, position in axis.dims or ()
                    if root_of(path) == primal
                ]
        # The rank rule goes by the annotations, which directions have too.
        extended.append(axis if axis.dims is None else replace(axis, dims=tuple(dims)))
    return tuple(extended)


def without_directions(
    axes: tuple[VmapAxis, ...],
    directions: Sequence[str],
) -> tuple[VmapAxis, ...]:
    """Inverse of `with_directions`."""
    return tuple(
        axis
        if axis.dims is None
        else replace(
            axis, dims=tuple(dim for dim in axis.dims if root_of(dim[0]) not in directions)
        )
        for axis in axes
    )


def _end_of_parameters(kinds: Sequence[int]) -> int:
    """Position behind all parameters of a signature, but before `**kwargs`."""
    return kinds.index(Kind.VAR_KEYWORD) if Kind.VAR_KEYWORD in kinds else len(kinds)


@dataclass(frozen=True)
class _Positions:
    """Array that index positions are computed from.

    Args:
        argument: Argument that holds the array; "" if there is none.
        path: Path of the array in the argument.
        line: User's line that reads or writes at the positions.
        is_whole: True if the argument holds integer arrays only.
    """

    argument: str
    path: str
    line: str
    is_whole: bool


def _traced_positions(
    where: Where,
    sources: Sequence[_Positions],
    elements: int,
) -> DerivativeError:
    """Error of a sparse derivative of a function that indexes at traced positions."""
    arguments = tuple(dict.fromkeys(source.argument for source in sources))
    paths = list(dict.fromkeys(source.path for source in sources if source.path))
    line = next((source.line for source in sources if source.line), "")
    arrays = shortlist([repr(path) for path in paths]) or "a value that is traced"
    at_line = f", at {line}" if line else ""
    what = (
        f"which elements are read hangs on {arrays}{at_line},"
        f" and is not known while it is traced: all {elements:,} elements of the sparse derivative"
        " may be nonzero."
    )
    rule = (
        "The structure is found before the numbers are there, so positions are integers that the"
        " call has, or static."
    )

    if all(source.is_whole for source in sources):
        names = arguments[0] if len(arguments) == 1 else arguments
        them = "it" if len(paths) == 1 else "them"
        fix = f"declare {them} static: @optimize(static={names!r}), or leave out `sparse`."
    else:
        fix = (
            "pass the positions as an argument of their own, an array of integers, or leave out"
            " `sparse`."
        )

    error = DerivativeError(where, what, rule, fix, code="J245")
    error.positions = arguments
    return error


class _Derivation:
    """Derivative at one set of arguments."""

    def __init__(
        self,
        derived: Derived,
        bound: BoundArguments,
        directions: Mapping[str, object],
    ):
        self.derived = derived
        self.bound = bound
        self.where = derived.where
        self.names = self._names(bound.arguments)
        chosen = {name: bound.arguments[name] for name in self.names}
        self._check_kinds(chosen)
        # A number that is an argument by itself varies if it is named.
        own = {id(value) for value in chosen.values()}
        self.at, rest = partition(chosen, lambda leaf: _is_real(leaf, own))
        self._check_real()
        self._check_rebuilt()
        self.directions = directions

        self._binder = Binder(derived.where, bound.signature)

        def primal(at: Arguments) -> object:
            return self._call_with(eqx.combine(at, rest))

        self._once: Primal = rolling_tree(primal) if derived.roll == AUTO else primal
        self.primal: Primal = _recomputing(self._once, derived.remat)

    def make(self) -> object:
        return getattr(self, "_" + self.derived.what)()

    # One method for each kind of derivative.

    def _grad(self) -> object:
        if self.derived.aux:
            (_, aux), grad = self._value_aux_and_grad()
            return grad, aux
        self._recompute_to_fit()
        return self._by_name(jax.grad(self._scalar)(self.at))

    def _value_and_grad(self) -> object:
        if self.derived.summed:
            self._prove_sum()
        if self.derived.aux:
            return self._value_aux_and_grad()
        self._recompute_to_fit()
        value, grad = jax.value_and_grad(self._scalar)(self.at)
        return value, self._by_name(grad)

    def _value_aux_and_grad(self) -> tuple[tuple[jax.Array, object], object]:
        """Value, auxiliary result and gradient.

        Leaves of the auxiliary result that are not arrays bypass JAX and `jax.checkpoint`.
        """
        self._note_decision("reverse", _BACKWARD)
        rest: object = None

        def scalar(at: Arguments) -> tuple[jax.Array, object]:
            nonlocal rest
            value, auxiliary = self._two(self._once(at))
            aux, rest = partition(auxiliary, eqx.is_array)
            return self._real_number(value), aux

        recomputed = _recomputing(scalar, self.derived.remat)
        with_gradient = jax.value_and_grad(recomputed, has_aux=True)
        (value, aux), grad = with_gradient(self.at)
        return (value, eqx.combine(aux, rest)), self._by_name(grad)

    def _two(self, pair: object) -> tuple[object, object]:
        if not isinstance(pair, tuple) or len(pair) != _WITH_AUX:
            raise DerivativeError(
                self.where,
                f"the function returns a {type(pair).__name__}.",
                "With has_aux=True it returns two things: the number, and the rest.",
                "return loss, aux.",
                code="J241",
            )
        return pair

    def _call_with(self, changed: Mapping[str, object]) -> object:
        """Call the function with other values of some arguments, in the order of the parameters."""
        # A dict keeps the order of its first keys, so updated arguments stay in their positions.
        arguments = {**self.bound.arguments, **changed}
        return self._binder.call(self.derived.fn, tuple(arguments.values()))

    @OWN_TIME.running()
    def _prove_sum(self) -> None:
        """Prove that the function is a sum along the axis of symbolic size.

        Raises:
            Refused: The function is not a sum; with the operation along the axis, and its line.
        """
        ranges = ranges_at_hand()
        arrays, rest = partition(self.bound.arguments, eqx.is_array)

        def whole(arrays: Arguments) -> object:
            out = self._call_with(eqx.combine(arrays, rest))
            return self._two(out)[0] if self.derived.aux else out

        program = jax.make_jaxpr(whole)(arrays)
        # A number of iterations is counted before any term is added up.
        counts = _axes.counts_iterations(program, ranges)
        if not counts:
            _refuse_other_uses(_axes.uses_of(program, ranges))
        plans = [_axes.plan_passes(program, symbol, ranges) for symbol in ranges]
        if counts:
            _refuse_other_uses(use for passes in plans for use in passes.uses_after_counting)

        # One pass adds the terms up. A second one means that a term needs a statistic of the whole
        # axis.
        for passes in plans:
            if passes.levels > 1:
                raise Refused(
                    _axes.coupling_statistic(passes),
                    "makes a statistic of the whole of it, which the term of each element needs"
                    " before terms are added up: sums along it that wait for one another,"
                    f" {passes.levels} levels of them",
                )

    def _jacobian(self) -> object:
        _, jacobian = self._value_and_jacobian()
        return jacobian

    def _value_and_jacobian(self) -> tuple[object, object]:
        value, blocks = self._jacobian_of(self._differentiable, self.derived.mode)
        return value, self._by_name(blocks)

    def _hessian(self) -> object:
        mode: Mode = "auto" if self.derived.mode == "reverse" else self.derived.mode
        gradient = jax.grad(self._scalar)
        _, rows = self._jacobian_of(gradient, mode, ("forward",), of=self._scalar)
        blocks: dict[str, object] = {}
        for a in self.names:
            blocks[a] = self._by_name({b: rows[b][a] for b in self.names})
        return self._by_name(blocks)

    def _jacobian_of(
        self,
        fn: Callable[..., object],
        mode: Mode,
        ways: tuple[PassMode, ...] = WAYS,
        of: Primal | None = None,
    ) -> tuple[object, dict[str, Any]]:
        """Value of a function of the arguments, and its Jacobian by argument, in the structure of
        the value.

        Args:
            fn: Function to differentiate.
            mode: Requested mode.
            ways: Modes that may be chosen.
            of: Function that `fn` is the gradient of; None if it is not a gradient.
        """
        over = "" if ways == WAYS else " over reverse"
        leaves, treedef = tree_flatten(self.at)
        form: Hashable = None

        def flat(arrays: Sequence[jax.Array]) -> list[Any]:
            nonlocal form
            out, form = tree_flatten(fn(tree_unflatten(treedef, arrays)))
            return out

        # Three cases: JAX's own dense transformations, known sizes with sparsity detection, and
        # symbolic sizes, where a colouring has to hold at every size.
        if self.derived.plain:
            made = None
        elif not ranges_at_hand():
            with OWN_TIME.running():
                # A symmetric Hessian allows a star colouring, which needs fewer colours.
                symmetric = False
                if of is not None:
                    symmetric = _sparsity.has_symmetric_hessian(jax.make_jaxpr(of)(self.at))
            try:
                made = _sparsity.jacobian(
                    flat,
                    leaves,
                    mode,
                    ways,
                    as_sparse=self.derived.sparse,
                    budget=self._budget,
                    symmetric=symmetric,
                    at_a_time=self.derived.at_a_time,
                    tried=self.derived.tried,
                )
            except _sparsity.UnknownPositions as unknown:
                sources = [self._position(value, line) for value, line in unknown.sources]
                columns = _sparsity.elements(leaves)
                rows = _sparsity.elements(jax.eval_shape(flat, leaves))
                raise _traced_positions(self.where, sources, columns * rows) from None
        elif self.derived.sparse:
            raise Refused(
                "",
                "makes a sparse Jacobian, which has as many elements as the structure at each size",
            )
        else:
            made = None if mode in WAYS else _sparsity.coloured_jacobian(flat, leaves, mode, ways)
        if made is None:
            if mode in WAYS:
                way, why = mode, f"mode={mode!r}"
            else:
                way = self._way_at_any_size(fn, ways)
                why = "dense passes at each size: no structure halves them"
            self._note_decision(way + over, why)
            return self._jacobian_at_any_size(fn, way)

        self._note_decision(
            made.mode + over,
            made.why,
            made.directions,
            made.at_a_time,
        )
        rows = [tree_unflatten(treedef, blocks) for blocks in made.blocks]
        value = tree_unflatten(form, made.value)
        jacobian: dict[str, Any] = {}
        for name in self.names:
            jacobian[name] = tree_unflatten(form, [row[name] for row in rows])
        return value, jacobian

    def _position(self, value: object, line: str) -> _Positions:
        """Find the argument that holds an array of positions."""
        for name, given in self.bound.arguments.items():
            leaves, _ = tree_flatten_with_path(given)
            path = next((path for path, leaf in leaves if leaf is value), None)
            if path is not None:
                dtypes = [getattr(leaf, "dtype", np.dtype(object)) for _, leaf in leaves]
                is_whole = all(dtype.kind in "iub" for dtype in dtypes)
                return _Positions(name, name + keystr(path), line, is_whole)
        return _Positions("", "", line, is_whole=False)

    def _way_at_any_size(
        self,
        fn: Callable[..., object],
        ways: tuple[PassMode, ...],
    ) -> PassMode:
        """Choose the cheaper dense mode, the same for all sizes.

        Raises:
            Refused: Forward is cheaper at some sizes and reverse at others.
        """
        with OWN_TIME.running():
            traced, shape = jax.make_jaxpr(fn, return_shape=True)(self.at)
        ways, _ = _sparsity.possible(traced, ways)
        if len(ways) == 1:
            return ways[0]
        columns, rows = _sparsity.elements(self.at), _sparsity.elements(shape)
        try:
            return "forward" if columns <= REVERSE * rows else "reverse"
        except InconclusiveDimensionOperation as error:
            what = (
                "has a Jacobian that is cheaper forward at some sizes and in reverse at others: say"
                ' mode="forward" or mode="reverse"'
            )
            raise Refused("", what) from error

    def _jacobian_at_any_size(
        self,
        fn: Callable[..., object],
        way: PassMode,
    ) -> tuple[object, dict[str, Any]]:
        """Dense Jacobian, by the same passes at every size."""
        transform = jax.jacfwd if way == "forward" else jax.jacrev

        def twice(at: Arguments) -> tuple[object, object]:
            out = fn(at)
            return out, out

        blocks, value = transform(twice, has_aux=True)(self.at)
        if self.derived.sparse and self.derived.plain:
            blocks = jax.tree.map(_sparse, blocks)
        treedef = jax.tree.structure(value)
        parts = treedef.flatten_up_to(blocks)
        jacobian: dict[str, Any] = {}
        for name in self.names:
            jacobian[name] = treedef.unflatten([part[name] for part in parts])
        return value, jacobian

    def _jvp(self) -> object:
        self._note_decision("forward", "one direction: one forward pass")
        return jax.jvp(self._differentiable, (self.at,), (self._tangents(),))

    def _hvp(self) -> object:
        how = "one direction: one forward pass over the backward one"
        self._note_decision("forward over reverse", how)
        gradient = jax.grad(self._scalar)
        _, product = jax.jvp(gradient, (self.at,), (self._tangents(),))
        return self._by_name(product)

    def _vjp(self) -> object:
        how, budget = "one direction: one backward pass", self._budget
        if self.derived.remat == AUTO and budget is not None and not at_any_size():
            self._save_to_fit(self._differentiable, budget, how)
        else:
            self._note_decision("reverse", how)
        value, pull = jax.vjp(self._differentiable, self.at)
        # Rows and axes of `vmap` are found in a cotangent by the annotation of the result.
        is_annotated = signature_of(self.derived.fn).return_annotation is not Signature.empty
        cotangent = fitting(
            self.where,
            COTANGENT,
            self.directions[COTANGENT],
            value,
            fix=None if is_annotated else "annotate the result of the function, as its arguments.",
        )
        (product,) = pull(cotangent)
        return value, self._by_name(product)

    def _linearize(self) -> tuple[object, Linear]:
        how = "what the function computes is kept, and each direction is one forward pass"
        self._note_decision("forward", how)
        value, push = jax.linearize(self._differentiable, self.at)
        leaves, treedef = tree_flatten(self.at)

        def pushed(*flat: Array) -> list[Array]:
            return jax.tree.leaves(push(tree_unflatten(treedef, flat)))

        program = jax.make_jaxpr(pushed)(*leaves)
        out = jax.tree.structure(value)
        static = (self.where, self.names, self.derived.single, treedef, out)
        return value, Linear(program.consts, program.jaxpr, static)

    # Steps of these methods.

    def _recompute_to_fit(self) -> None:
        """Recompute residuals that the budget has no room for, unless a `remat` policy decides
        already.
        """
        budget = self._budget
        auto = self.derived.remat == AUTO
        if budget is None or (self.derived.remat is not None and not auto) or at_any_size():
            self._note_decision("reverse", _BACKWARD)
            return
        if auto:
            self._save_to_fit(self._scalar, budget, _BACKWARD)
            return
        leaves, treedef = tree_flatten(self.at)

        def value(arrays: Sequence[Array]) -> jax.Array:
            return self._scalar(tree_unflatten(treedef, arrays))

        traced: Any = jax.make_jaxpr(value)(leaves)
        with OWN_TIME.running():
            choice = remat_to_fit(traced, leaves, budget)
        self.primal = lambda at: choice.fn(jax.tree.leaves(at))
        self._note_decision("reverse", f"{_BACKWARD}; {choice.why}")

    def _save_to_fit(
        self,
        fn: Callable[..., object],
        budget: int,
        how: str,
    ) -> None:
        """Save the residuals that fit, with the least recomputation: `remat="auto"`."""
        leaves, treedef = tree_flatten(self.at)
        form: Hashable = None

        def flat(*arrays: Array) -> list[Array]:
            nonlocal form
            out, form = tree_flatten(fn(tree_unflatten(treedef, arrays)))
            return out

        chosen = choose_residuals(self.where, flat, leaves, budget)
        if chosen.again:
            self.primal = lambda at: tree_unflatten(form, chosen.fn(jax.tree.leaves(at)))
        self._note_decision("reverse", f"{how}; {chosen.why}")

    @property
    def _budget(self) -> int | None:
        memory = self.derived.memory
        if memory is None:
            return None
        return free_bytes() if memory == AUTO else int(memory)

    def _names(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        wrt = self.derived.wrt
        if wrt is not None:
            unknown = [name for name in wrt if name not in arguments]
            if unknown:
                raise unknown_name(self.where, unknown[0], list(arguments))
            return wrt

        names = tuple(
            name
            for name, value in arguments.items()
            if name not in self.derived.skip and any(map(_is_real, jax.tree.leaves(value)))
        )
        if not names:
            raise DerivativeError(
                self.where,
                "no argument holds a floating-point array.",
                "A derivative is with respect to real numbers that vary.",
                "pass an array of floats, or name the argument with wrt=... to see what it is.",
            )
        return names

    def _check_kinds(self, chosen: Mapping[str, object]) -> None:
        for name, value in chosen.items():
            leaves = jax.tree.leaves(value)
            if any(_is_real(leaf, {id(value)}) for leaf in leaves):
                continue
            arrays = [leaf for leaf in leaves if _is_array(leaf) and isinstance(leaf, jax.Array)]
            if arrays:
                what = f"is {arrays[0].dtype}"
                fix = f"pass {name}.astype(float), or leave it out of `wrt`."
            else:
                what = f"is static: {repr_of(value)}"
                fix = "annotate it `float` or as an array, or leave it out of `wrt`."
            raise DerivativeError(
                self.where,
                f"{name!r} {what}.",
                "A derivative is with respect to floating-point arrays.",
                fix,
            )

    def _check_real(self) -> None:
        for path, leaf in tree_flatten_with_path(self.at)[0]:
            if issubdtype(leaf.dtype, jax.numpy.complexfloating):
                raise DerivativeError(
                    self.where,
                    f"{_path(path)} is {leaf.dtype}.",
                    "A derivative is with respect to real numbers.",
                    "take real and imaginary parts as arguments, or jax.grad(..., holomorphic=True)"
                    " of a holomorphic function.",
                )

    def _check_rebuilt(self) -> None:
        """Refuse a class that does not take None in place of a leaf without a derivative."""
        for name, part in self.at.items():
            leaves, treedef = tree_flatten(part)
            try:
                tree_unflatten(treedef, leaves)
            except Exception as error:
                raise DerivativeError(
                    self.where,
                    f"a class in {name!r} does not take None for a leaf that is not of floats.",
                    "A derivative has the structure of its argument, with None for such a leaf.",
                    "pass an array there, as jnp.asarray(...), or let the class take None.",
                ) from error

    def _scalar(self, at: Arguments) -> jax.Array:
        return self._real_number(self.primal(at))

    def _real_number(self, value: Any) -> jax.Array:
        shape = getattr(value, "shape", None)
        if shape != () or not issubdtype(value.dtype, jax.numpy.floating):
            what = f"a {type(value).__name__}"
            if shape is not None:
                what = f"an array {value.dtype}{list(shape)}"
            raise DerivativeError(
                self.where,
                f"the function returns {what}.",
                f"`{self.derived.what}` is of one real number.",
                "use `jacobian` or `vjp`, or return the sum or mean that is meant.",
                code="J241",
            )
        return value

    def _differentiable(self, at: Arguments) -> object:
        return self._arrays(self.primal(at))

    def _arrays(self, value: object) -> object:
        if not tree_flatten(value)[0]:
            raise DerivativeError(
                self.where,
                "the function returns no array.",
                f"`{self.derived.what}` is of what it returns.",
                "return an array.",
                code="J241",
            )
        for path, leaf in tree_flatten_with_path(value)[0]:
            dtype = getattr(leaf, "dtype", None)
            if dtype is None or not issubdtype(dtype, jax.numpy.floating):
                what = f"{dtype}{list(leaf.shape)}" if dtype is not None else f"{leaf!r}"
                raise DerivativeError(
                    self.where,
                    f"the result{keystr(path)} is {what}.",
                    "What is differentiated is real floating-point arrays.",
                    "return these only, from a function of its own.",
                    code="J241",
                )
        return value

    def _note_decision(
        self,
        mode: str,
        why: str,
        directions: int = 0,
        at_a_time: int | None = None,
    ) -> None:
        collected = _DECISIONS.get()
        if collected is not None:
            collected.append(
                Decision(
                    mode,
                    why,
                    directions,
                    at_a_time,
                )
            )

    def _tangents(self) -> Arguments:
        tangents: dict[str, object] = {}
        for name in self.names:
            tangent = self.directions[TANGENT + name]
            tangents[name] = fitting(self.where, name, tangent, self.at[name])
        return tangents

    def _by_name(self, parts: Mapping[str, object]) -> object:
        return parts[self.names[0]] if self.derived.single else dict(parts)


def _recomputing(
    fn: Callable[[Arguments], T],
    policy: str | RematPolicy | None,
) -> Callable[[Arguments], T]:
    if policy is None or policy == AUTO:
        return fn
    return jax.checkpoint(fn, policy=policy_function(policy))


def _sparse(block: Any) -> Any:
    return bcoo().fromdense(block, nse=block.size)


def unknown_name(
    where: Where | str,
    name: str,
    names: list[str],
) -> DerivativeError:
    """Error for an argument that does not exist."""
    return DerivativeError(
        where,
        f"{name!r} is not an argument.",
        f"The arguments are {', '.join(names) or 'none'}.",
        name_fix(name, names),
        code="J242",
    )


def _refuse_other_uses(uses: Iterable[_axes.Use]) -> None:
    """Refuse the first use of an axis that is no sum along it."""
    for use in uses:
        if not use.is_sum:
            other = f"is not a sum along it: {use.kind}, {use.how} (`{public_name(use.op)}`)"
            raise Refused(use.place, use.refused or other)


def _is_array(leaf: object) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _path(path: Path) -> str:
    return f"{path[0].key}{keystr(path[1:])}"
