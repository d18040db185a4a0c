"""Arguments of a derivative: which are differentiated, what they and the result have to be, and
the function of these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import BoundArguments
from typing import Any, TypeVar

import equinox as eqx
import jax

from ..._errors import DerivativeError, Where, name_fix, repr_of
from ..._jax.programs.linearized import fitting
from ..._jax.stand_ins import partition
from ..._jax.trees import (
    Path,
    issubdtype,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_unflatten,
)
from ..._jax.typed import Array
from ..._jax.xla.memory import free_bytes
from ..._signature.binding import Binder
from ..._signature.options import AUTO
from ..._signature.policies import RematPolicy, policy_function
from ..remat import choose_residuals
from ..roll import rolling_tree
from .decisions import note_decision
from .options import DerivativeOptions

Arguments = Mapping[str, Any]
"""Arguments that are differentiated, by name; pytrees of arrays."""
Primal = Callable[[Arguments], object]
"""The function, of the differentiated arguments alone."""
T = TypeVar("T")
TANGENT, COTANGENT = "tangent_of_", "cotangent"
_WITH_AUX = 2

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


class DerivedCall:
    """Derivative at one set of arguments. A kind is a method of a class below."""

    def __init__(
        self,
        derived: DerivativeOptions,
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
        self.primal: Primal = recomputing(self._once, derived.remat)

    def make(self) -> object:
        return getattr(self, "_" + self.derived.what)()

    def _call_with(self, changed: Mapping[str, object]) -> object:
        """Call the function with other values of some arguments, in the order of the parameters."""
        # A dict keeps the order of its first keys, so updated arguments stay in their positions.
        arguments = {**self.bound.arguments, **changed}
        return self._binder.call(self.derived.fn, tuple(arguments.values()))

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
        note_decision("reverse", f"{how}; {chosen.why}")

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

    def _tangents(self) -> Arguments:
        tangents: dict[str, object] = {}
        for name in self.names:
            tangent = self.directions[TANGENT + name]
            tangents[name] = fitting(self.where, name, tangent, self.at[name])
        return tangents

    def _by_name(self, parts: Mapping[str, object]) -> object:
        return parts[self.names[0]] if self.derived.single else dict(parts)

    def _recompute(self, fn: Callable[[Sequence[Array]], object]) -> None:
        """Differentiate a function of the arrays that recomputes residuals."""
        self.primal = lambda at: fn(jax.tree.leaves(at))


def recomputing(
    fn: Callable[[Arguments], T],
    policy: str | RematPolicy | None,
) -> Callable[[Arguments], T]:
    if policy is None or policy == AUTO:
        return fn
    return jax.checkpoint(fn, policy=policy_function(policy))


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


def _is_array(leaf: object) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _path(path: Path) -> str:
    return f"{path[0].key}{keystr(path[1:])}"
