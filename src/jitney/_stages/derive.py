"""Derivatives of a function, as functions of the same arguments: bodies of programs of their own.

A derivative is not a stage inside the program of its function, since its results are others. It is
the body of another program, with the options of the function around it. So the derivative itself is
padded, cut into chunks or mapped, and `remat` stands inside it.

    f.grad             ->  a program whose body is Derived(f, "grad", ...)
    Derived.__call__   ->  bind the arguments, split them into `at` (differentiated) and the rest,
                           then one method of `_Derivation` per kind: `_grad`, `_jacobian`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from inspect import BoundArguments, Signature
from inspect import Parameter as Kind
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import InconclusiveDimensionOperation

from .. import _axes, _sparsity
from .._axes import Refused, at_any_size, ranges_at_hand
from .._contract.contract import Contract, Parameter, contract_of
from .._errors import DerivativeError, Where, name_fix, repr_of, shortlist
from .._jax.linearized import Linear, fitting
from .._jax.memory import free_bytes
from .._jax.primitives import spelled
from .._jax.sparse_arrays import bcoo
from .._jax.trees import issubdtype, keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from .._jax.typed import Array
from .._own_time import OWN_TIME
from .._signature.binding import Binder, signature_of, where_of
from .._signature.hints import AnyHint
from .._signature.options import AUTO
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
_WITH_AUX = 2
_BACKWARD = "one scalar: one backward pass"
TANGENT, COTANGENT = "tangent_of_", "cotangent"


@dataclass(frozen=True)
class Decision:
    """Mode of a derivative, with the reason."""

    mode: str
    why: str


_DECISIONS: ContextVar[list[Decision] | None] = ContextVar("decisions", default=None)


@contextmanager
def decisions() -> Generator[list[Decision]]:
    """Collect the decisions about derivatives that are traced meanwhile."""
    made: list[Decision] = []
    token = _DECISIONS.set(made)
    try:
        yield made
    finally:
        _DECISIONS.reset(token)


KEYWORDS = {
    **{
        name: f"say it of the function: jitney.lazy_derivatives({name}=...)(f)."
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
    """

    fn: Callable[..., Any]
    what: What
    wrt: tuple[str, ...] | None
    skip: tuple[str, ...] = ()
    single: bool = False
    mode: Mode = "auto"
    sparse: bool = False
    memory: int | str | None = None
    remat: str | None = None
    aux: bool = False
    summed: bool = False
    plain: bool = False
    roll: str | None = None
    positions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("__name__", "__qualname__"):
            object.__setattr__(
                self, name, f"{getattr(self.fn, name, type(self.fn).__name__)}.{self.what}"
            )
        for name in ("__module__", "__doc__"):
            object.__setattr__(self, name, getattr(self.fn, name, None))
        object.__setattr__(self, "__wrapped__", self.fn)
        object.__setattr__(self, "__signature__", self._with_directions(signature_of(self.fn)))

    def __reduce__(self) -> Any:
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
        at = next(
            (i for i, p in enumerate(parameters) if p.kind is Kind.VAR_KEYWORD), len(parameters)
        )
        parameters[at:at] = [Kind(name, Kind.KEYWORD_ONLY) for name in self.directions]
        return signature.replace(parameters=parameters, return_annotation=Signature.empty)

    def contract(self, namespace: Mapping[str, object] | None) -> Contract:
        """Contract of the function, extended by its directions.

        A direction has the annotation of its primal; the result has none.
        """
        plain = contract_of(self.fn, signature_of(self.fn), self.where, namespace)
        hints = {TANGENT + parameter.name: parameter.hint for parameter in plain.parameters} | {
            COTANGENT: plain.result
        }
        parameters = list(plain.parameters)
        at = next(
            (i for i, p in enumerate(parameters) if p.kind == Kind.VAR_KEYWORD), len(parameters)
        )
        parameters[at:at] = [
            Parameter(name, Kind.KEYWORD_ONLY, hints[name], has_default=False)
            for name in self.directions
        ]
        return replace(
            plain, parameters=tuple(parameters), result=AnyHint("the result of a derivative")
        )

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in self.directions}
        bound = signature_of(self.fn).bind(*args, **kwargs)
        bound.apply_defaults()
        return _Derivation(self, bound, given).make()


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
    where: Where, sources: Sequence[_Positions], elements: int
) -> DerivativeError:
    """Error of a sparse derivative of a function that indexes at traced positions."""
    arguments = tuple(dict.fromkeys(source.argument for source in sources))
    paths = list(dict.fromkeys(source.path for source in sources if source.path))
    line = next((source.line for source in sources if source.line), "")
    sources_told = shortlist([repr(path) for path in paths]) or "a value that is traced"
    what = (
        f"which elements are read hangs on {sources_told}{f', at {line}' if line else ''},"
        f" and is not known while it is traced: all {elements:,} elements of the sparse derivative"
        " may be nonzero."
    )
    rule = (
        "The structure is found before the numbers are there, so positions are integers that the"
        " call has, or static."
    )

    if all(source.is_whole for source in sources):
        names = arguments[0] if len(arguments) == 1 else arguments
        fix = (
            f"declare {'it' if len(paths) == 1 else 'them'} static: @optimize(static={names!r}), or"
            " leave out `sparse`."
        )
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

    def __init__(self, derived: Derived, bound: BoundArguments, directions: Mapping[str, Any]):
        self.derived = derived
        self.bound = bound
        self.where = derived.where
        self.names = self._names(bound.arguments)
        chosen = {name: bound.arguments[name] for name in self.names}
        self._check_kinds(chosen)
        self.at, rest = eqx.partition(chosen, eqx.is_inexact_array)
        self._check_real()
        self.directions = directions

        self._binder = Binder(derived.where, bound.signature)

        def primal(at: Any) -> Any:
            return self._called_with(eqx.combine(at, rest))

        self._once: Callable[[Any], Any] = rolling_tree(primal) if derived.roll == AUTO else primal
        self.primal: Callable[[Any], Any] = _recomputing(self._once, derived.remat)

    def make(self) -> Any:
        return getattr(self, "_" + self.derived.what)()

    # One method for each kind of derivative.

    def _grad(self) -> Any:
        if self.derived.aux:
            (_, aux), grad = self._value_aux_and_grad()
            return grad, aux
        self._recompute_to_fit()
        return self._by_name(jax.grad(self._scalar)(self.at))

    def _value_and_grad(self) -> Any:
        if self.derived.summed:
            self._prove_summed()
        if self.derived.aux:
            return self._value_aux_and_grad()
        self._recompute_to_fit()
        value, grad = jax.value_and_grad(self._scalar)(self.at)
        return value, self._by_name(grad)

    def _value_aux_and_grad(self) -> Any:
        """Value, auxiliary result and gradient.

        Leaves of the auxiliary result that are not arrays bypass JAX and `jax.checkpoint`.
        """
        self._decided("reverse", _BACKWARD)
        rest: Any = None

        def scalar(at: object) -> Any:
            nonlocal rest
            value, auxiliary = self._two(self._once(at))
            aux, rest = eqx.partition(auxiliary, eqx.is_array)
            return self._real_number(value), aux

        (value, aux), grad = jax.value_and_grad(
            _recomputing(scalar, self.derived.remat), has_aux=True
        )(self.at)
        return (value, eqx.combine(aux, rest)), self._by_name(grad)

    def _two(self, pair: object) -> tuple[Any, Any]:
        if not isinstance(pair, tuple) or len(pair) != _WITH_AUX:
            raise DerivativeError(
                self.where,
                f"the function returns a {type(pair).__name__}.",
                "With has_aux=True it returns two things: the number, and the rest.",
                "return loss, aux.",
                code="J241",
            )
        return pair

    def _called_with(self, changed: Mapping[str, object]) -> Any:
        """Call the function with other values of some arguments, in the order of the parameters."""
        # A dict keeps the order of its first keys, so updated arguments stay in their positions.
        return self._binder.call(
            self.derived.fn, tuple({**self.bound.arguments, **changed}.values())
        )

    @OWN_TIME.running()
    def _prove_summed(self) -> None:
        """Prove that the function is a sum along the axis of symbolic size.

        Raises:
            Refused: The function is not a sum; with the operation along the axis, and its line.
        """
        ranges = ranges_at_hand()
        arrays, rest = eqx.partition(self.bound.arguments, eqx.is_array)

        def whole(arrays: Any) -> Any:
            out = self._called_with(eqx.combine(arrays, rest))
            return self._two(out)[0] if self.derived.aux else out

        program = jax.make_jaxpr(whole)(arrays)
        for use in _axes.uses_of(program, ranges):
            if not use.is_sum:
                raise Refused(
                    use.place,
                    use.refused
                    or f"is no sum along it: {use.kind}, {use.how} (`{spelled(use.op)}`)",
                )

        # One pass adds the terms up. A second one means that a term needs a statistic of the whole
        # axis.
        for symbol in ranges:
            passes = _axes.plan_passes(program, symbol, ranges)
            if passes.levels > 1:
                raise Refused(
                    _axes.coupling_statistic(passes),
                    "makes a statistic of the whole of it, which the term of each element needs"
                    " before terms are added up: sums along it that wait for one another,"
                    f" {passes.levels} levels of them",
                )

    def _jacobian(self) -> Any:
        return self._value_and_jacobian()[1]

    def _value_and_jacobian(self) -> Any:
        value, blocks = self._jacobian_of(self._differentiable, self.derived.mode)
        return value, self._by_name(blocks)

    def _hessian(self) -> Any:
        mode: Mode = "auto" if self.derived.mode == "reverse" else self.derived.mode
        _, rows = self._jacobian_of(jax.grad(self._scalar), mode, ("forward",), of=self._scalar)
        return self._by_name(
            {a: self._by_name({b: rows[b][a] for b in self.names}) for a in self.names}
        )

    def _jacobian_of(
        self,
        fn: Callable[..., object],
        mode: Mode,
        ways: tuple[PassMode, ...] = WAYS,
        of: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
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
        form: Any = None

        def flat(arrays: Any) -> Any:
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
                symmetric = of is not None and _sparsity.has_symmetric_hessian(
                    jax.make_jaxpr(of)(self.at)
                )
            try:
                made = _sparsity.jacobian(
                    flat,
                    leaves,
                    mode,
                    ways,
                    as_sparse=self.derived.sparse,
                    budget=self._budget,
                    symmetric=symmetric,
                )
            except _sparsity.UnknownPositions as unknown:
                sources = [self._position(value, line) for value, line in unknown.sources]
                count = _sparsity.elements(leaves) * _sparsity.elements(
                    jax.eval_shape(flat, leaves)
                )
                raise _traced_positions(self.where, sources, count) from None
        elif self.derived.sparse:
            raise Refused(
                "",
                "makes a sparse Jacobian, which has as many elements as the structure at each size",
            )
        else:
            made = None if mode in WAYS else _sparsity.coloured(flat, leaves, mode, ways)
        if made is None:
            way = mode if mode in WAYS else self._way_at_any_size(fn, ways)
            self._decided(
                way + over,
                (
                    f"mode={mode!r}"
                    if mode in WAYS
                    else "dense passes at each size: no structure halves them"
                ),
            )
            return self._jacobian_at_any_size(fn, way)
        self._decided(made.mode + over, made.why)
        rows = [tree_unflatten(treedef, blocks) for blocks in made.blocks]
        return tree_unflatten(form, made.value), {
            name: tree_unflatten(form, [row[name] for row in rows]) for name in self.names
        }

    def _position(self, value: object, line: str) -> _Positions:
        """Find the argument that holds an array of positions."""
        for name, given in self.bound.arguments.items():
            leaves, _ = tree_flatten_with_path(given)
            path = next((path for path, leaf in leaves if leaf is value), None)
            if path is not None:
                is_whole = all(
                    getattr(leaf, "dtype", np.dtype(object)).kind in "iub" for _, leaf in leaves
                )
                return _Positions(name, name + keystr(path), line, is_whole)
        return _Positions("", "", line, is_whole=False)

    def _way_at_any_size(self, fn: Callable[..., object], ways: tuple[PassMode, ...]) -> PassMode:
        """Choose the cheaper dense mode, the same for all sizes.

        Raises:
            Refused: Forward is cheaper at some sizes and reverse at others.
        """
        with OWN_TIME.running():
            traced, shape = jax.make_jaxpr(fn, return_shape=True)(self.at)
        ways, _ = _sparsity.possible(traced, ways)
        if len(ways) == 1:
            return ways[0]
        try:
            return (
                "forward"
                if _sparsity.elements(self.at) <= REVERSE * _sparsity.elements(shape)
                else "reverse"
            )
        except InconclusiveDimensionOperation as error:
            what = (
                "has a Jacobian that is cheaper forward at some sizes and in reverse at others: say"
                ' mode="forward" or mode="reverse"'
            )
            raise Refused("", what) from error

    def _jacobian_at_any_size(
        self, fn: Callable[..., object], way: PassMode
    ) -> tuple[Any, dict[str, Any]]:
        """Dense Jacobian, by the same passes at every size."""
        transform = jax.jacfwd if way == "forward" else jax.jacrev

        def twice(at: Any) -> Any:
            out = fn(at)
            return out, out

        blocks, value = transform(twice, has_aux=True)(self.at)
        if self.derived.sparse and self.derived.plain:
            blocks = jax.tree.map(_sparse, blocks)
        treedef: Any = tree_flatten(value)[1]
        parts = treedef.flatten_up_to(blocks)
        return value, {
            name: treedef.unflatten([part[name] for part in parts]) for name in self.names
        }

    def _jvp(self) -> Any:
        self._decided("forward", "one direction: one forward pass")
        return jax.jvp(self._differentiable, (self.at,), (self._tangents(),))

    def _hvp(self) -> Any:
        self._decided(
            "forward over reverse", "one direction: one forward pass over the backward one"
        )
        return self._by_name(jax.jvp(jax.grad(self._scalar), (self.at,), (self._tangents(),))[1])

    def _vjp(self) -> Any:
        how, budget = "one direction: one backward pass", self._budget
        if self.derived.remat == AUTO and budget is not None and not at_any_size():
            self._save_to_fit(self._differentiable, budget, how)
        else:
            self._decided("reverse", how)
        value, pull = jax.vjp(self._differentiable, self.at)
        cotangent = self._fitting(COTANGENT, self.directions[COTANGENT], value)
        return value, self._by_name(pull(cotangent)[0])

    def _linearize(self) -> Any:
        self._decided(
            "forward", "what the function computes is kept, and each direction is one forward pass"
        )
        value, push = jax.linearize(self._differentiable, self.at)
        leaves, treedef = tree_flatten(self.at)

        def pushed(*flat: object) -> Any:
            return jax.tree.leaves(push(jax.tree.unflatten(treedef, flat)))

        program = jax.make_jaxpr(pushed)(*leaves)
        out = jax.tree.structure(value)
        return value, Linear(
            program.consts,
            program.jaxpr,
            (self.where, self.names, self.derived.single, treedef, out),
        )

    # Steps of these methods.

    def _recompute_to_fit(self) -> None:
        """Recompute residuals that the budget has no room for, unless a `remat` policy decides
        already.
        """
        budget = self._budget
        auto = self.derived.remat == AUTO
        if budget is None or (self.derived.remat is not None and not auto) or at_any_size():
            self._decided("reverse", _BACKWARD)
            return
        if auto:
            self._save_to_fit(self._scalar, budget, _BACKWARD)
            return
        leaves, treedef = tree_flatten(self.at)

        def value(arrays: Any) -> Any:
            return self._scalar(tree_unflatten(treedef, arrays))

        traced = jax.make_jaxpr(value)(leaves)
        with OWN_TIME.running():
            choice = remat_to_fit(traced, leaves, budget)
        self.primal = lambda at: choice.fn(tree_flatten(at)[0])
        self._decided("reverse", f"{_BACKWARD}; {choice.why}")

    def _save_to_fit(self, fn: Callable[..., object], budget: int, how: str) -> None:
        """Save the residuals that fit, with the least recomputation: `remat="auto"`."""
        leaves, treedef = tree_flatten(self.at)
        form: Any = None

        def flat(*arrays: Array) -> Any:
            nonlocal form
            out, form = tree_flatten(fn(tree_unflatten(treedef, arrays)))
            return out

        chosen = choose_residuals(self.where, flat, leaves, budget)
        if chosen.again:
            self.primal = lambda at: tree_unflatten(form, chosen.fn(tree_flatten(at)[0]))
        self._decided("reverse", f"{how}; {chosen.why}")

    @property
    def _budget(self) -> int | None:
        memory = self.derived.memory
        return free_bytes() if memory == AUTO else int(memory) if memory is not None else None

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
            if name not in self.derived.skip
            and any(map(eqx.is_inexact_array, jax.tree.leaves(value)))
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
            if any(map(eqx.is_inexact_array, leaves)):
                continue
            arrays = [leaf for leaf in leaves if _is_array(leaf) and isinstance(leaf, jax.Array)]
            what = f"is {arrays[0].dtype}" if arrays else f"is static: {repr_of(value)}"
            fix = (
                f"pass {name}.astype(float), or leave it out of `wrt`."
                if arrays
                else "annotate it `float` or as an array, or leave it out of `wrt`."
            )
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

    def _scalar(self, at: object) -> Any:
        return self._real_number(self.primal(at))

    def _real_number(self, value: Any) -> Any:
        shape = getattr(value, "shape", None)
        if shape != () or not issubdtype(value.dtype, jax.numpy.floating):
            what = (
                f"an array {value.dtype}{list(shape)}"
                if shape is not None
                else f"a {type(value).__name__}"
            )
            raise DerivativeError(
                self.where,
                f"the function returns {what}.",
                f"`{self.derived.what}` is of one real number.",
                "use `jacobian` or `vjp`, or return the sum or mean that is meant.",
                code="J241",
            )
        return value

    def _differentiable(self, at: object) -> Any:
        return self._arrays(self.primal(at))

    def _arrays(self, value: object) -> Any:
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

    def _decided(self, mode: str, why: str) -> None:
        made = _DECISIONS.get()
        if made is not None:
            made.append(Decision(mode, why))

    def _tangents(self) -> Any:
        return {
            name: self._fitting(name, self.directions[TANGENT + name], self.at[name])
            for name in self.names
        }

    def _fitting(self, name: str, given: object, at: object) -> Any:
        return fitting(self.where, name, given, at)

    def _by_name(self, parts: Mapping[str, object]) -> Any:
        return parts[self.names[0]] if self.derived.single else dict(parts)


def _recomputing(fn: Callable[[Any], object], policy: str | None) -> Callable[[Any], Any]:
    return (
        fn
        if policy in (None, AUTO)
        else jax.checkpoint(fn, policy=getattr(jax.checkpoint_policies, policy))
    )


def _sparse(block: Any) -> Any:
    return bcoo().fromdense(block, nse=block.size)


def unknown_name(where: Where | str, name: str, names: list[str]) -> DerivativeError:
    """Error for an argument that does not exist."""
    return DerivativeError(
        where,
        f"{name!r} is no argument.",
        f"The arguments are {', '.join(names) or 'none'}.",
        name_fix(name, names),
        code="J242",
    )


def _is_array(leaf: object) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _path(path: tuple[Any, ...]) -> str:
    return f"{path[0].key}{keystr(path[1:])}"
