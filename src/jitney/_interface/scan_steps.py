"""`jitney.scan_steps`: many small steps as one program, so that the cost of a call is paid once for
all of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._errors import ContractError, OptionError, name_fix
from .._jax.stand_ins import partition
from .._jax.ticks import Ticks
from .._jax.trees import Path, keystr, tree_flatten_with_path
from .._jax.typed import Array
from .._owners import public
from .._signature.binding import signature_of
from .._values.static_values import Unkeyed, static_key
from .._values.strict_keys import are_one
from .optimize import optimize
from .program import Program

_MOST = 2**31
_Carry = tuple[Any, Any]
"""Number of a step, and the arrays of the state."""


@public
def scan_steps(
    step: Callable[..., object],
    n: int,
    /,
    *,
    carry: int = 1,
    over: str | Sequence[str] = (),
    progress: bool = False,
    **options: Any,
) -> Program[..., Any]:
    """Run `n` steps of a training loop, a sampler or a simulation in one program: `jax.lax.scan` of
    a function as people write it.

    The first arguments of `step` are its carry, and it returns their new values first; its other
    results are stacked over the steps. Modules, optimiser states and other trees may hold more than
    arrays (functions, text): such values stay as they are.

    Args:
        step: A function, or a program of `@optimize`, whose signature is checked in each step, and
            whose `static` and `donate` apply.
        n: Number of steps.
        carry: How many of its leading arguments are the carry. `step(model, state, batch) ->
            (model, state, loss)` has `carry=2`; with `carry=1` a step that returns nothing else
            returns the new value itself.
        over: The arguments of which each step gets its own element, along a new first axis of size
            `n`: batches, keys.
        progress: Whether a bar shows the progress of a call. It is drawn by callbacks, a hundred of
            them at most.
        options: Of `jitney.optimize`, for the whole program.

    Returns:
        A `Program` of the arguments of `step`. It returns what `step` returns: the last values of
        the carry, and everything else with a new first axis of size `n`.

    Raises:
        OptionError: `n`, `carry` or `over` do not fit the signature of `step`.
        ContractError: When it is called: the carry that a step returns does not fit into the next
            one, or an argument of `over` has another size.
    """
    if not callable(step):
        raise OptionError(
            "scan_steps()",
            f"{step!r} is not a step.",
            _HANDED_ON,
            "pass a function, or a program of one.",
            code="J204",
        )
    program = step if isinstance(step, Program) else None
    inner: Any = program if program is not None else optimize(step)
    where = f"scan_steps() of {inner.core.where}"
    along = _texts(where, over)
    signature = signature_of(step)
    names = _names(where, signature, n, carry, along)

    # Bound arguments of a method or a partial become arguments of the whole program: they may
    # change.
    held, free = inner.parted()

    count = len(held)

    def steps(*args: object, **kwargs: object) -> object:
        bound = signature.bind(*args[count:], **kwargs)
        bound.apply_defaults()
        turn = functools.partial(free, *args[:count]) if held else free
        loop = _Loop(where, turn, bound, names[:carry], along, n)
        ticks = Ticks(str(inner.__name__), n) if progress else None
        return loop.run(ticks)

    # A signature without annotations: those of `step` are checked in each step, by its own program.
    bare = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
        for name in _operand_names(inner.body, count, names)
    ]
    bare += [
        parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()
    ]
    steps.__signature__ = inspect.Signature(bare)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(steps, name, getattr(step, name, getattr(type(step), name, None)))
    if program is not None:
        options = {"static": program.options.static, "donate": program.options.donate} | options
    return optimize(**options)(steps).bound_as(inner)


def _operand_names(
    body: Callable[..., object],
    count: int,
    others: Sequence[str],
) -> list[str]:
    """Return names, for messages, of the arguments that a step is bound to."""
    names = [
        name
        for name, each in signature_of(body).parameters.items()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    own = names[:count]
    if len(own) == count and set(own).isdisjoint(others):
        return own
    return [f"bound_{i}" for i in range(count)]


def _texts(where: str, over: object) -> tuple[str, ...]:
    """Return the names of arguments."""
    if isinstance(over, str):
        return (over,)
    if not isinstance(over, (list, tuple)) or not all(isinstance(name, str) for name in over):
        rule = "It is the name of an argument, or several."
        raise OptionError(
            where, f"over={over!r} names no arguments.", rule, 'write over=("x", "y").', code="J220"
        )
    return tuple(over)


def _names(
    where: str,
    signature: inspect.Signature,
    n: int,
    carry: int,
    over: Sequence[str],
) -> list[str]:
    """Return the names of the parameters after checking `n`, `carry` and `over`."""
    if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n < _MOST:
        rule = f"It is an integer from 0 to {_MOST - 1}, as far as the counter of a loop goes."
        raise OptionError(
            where, f"n={n!r} is not a number of steps.", rule, "write n=1000.", code="J220"
        )
    parameters = signature.parameters
    names = [
        name
        for name, each in parameters.items()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if not isinstance(carry, int) or isinstance(carry, bool) or not 1 <= carry <= len(names):
        rule = (
            "It counts the leading arguments with a name that a step hands on, of which this one"
            f" has {len(names)}."
        )
        fix = (
            "write carry=1, and return its new value first."
            if names
            else "pass a function with one: lambda state: ..."
        )
        raise OptionError(where, f"carry={carry!r} does not fit.", rule, fix, code="J220")
    for name in over:
        if name not in parameters or name in names[:carry]:
            what = "is handed on" if name in names[:carry] else "is not an argument"
            rest = [each for each in parameters if each not in names[:carry]]
            rule = (
                f"An argument with an element for each step is one of {', '.join(rest) or 'none'}."
            )
            raise OptionError(
                where, f"over={name!r}: it {what}.", rule, name_fix(name, rest), code="J202"
            )
    return names


class _Loop:
    """A trace of the loop."""

    def __init__(
        self,
        where: str,
        step: Callable[..., object],
        bound: inspect.BoundArguments,
        carried: Sequence[str],
        over: Sequence[str],
        n: int,
    ):
        self.where = where
        self.step = step
        self.bound = bound
        self.carried = carried
        self.over = over
        self.n = n
        # The parts of a step's results that are not arrays.
        self.beside: object = None
        # True if a step returns nothing but its carry.
        self.is_alone = False
        state = tuple(bound.arguments[name] for name in carried)
        self.arrays, self.rest = partition(state, eqx.is_array)

    def run(self, ticks: Ticks | None) -> object:
        # Arrays of `over` are scanned; everything else in these arguments is constant.
        scanned = {name: self.bound.arguments[name] for name in self.over}
        data, constant = partition(scanned, eqx.is_array)
        for path, leaf in tree_flatten_with_path(data)[0]:
            self._check_size(path, leaf)

        # The carry is the step number with the arrays of the state. Values that are not arrays must
        # be the same after each step, so they stay outside of the scan.
        def body(carried: _Carry, element: Any) -> tuple[_Carry, Any]:
            at, arrays = carried
            state = eqx.combine(arrays, self.rest)
            result = self._call_step(state, eqx.combine(element, constant))
            new, out = self._split_result(result)
            stacked, self.beside = partition(out, eqx.is_array)
            if ticks is not None:
                ticks.trace(at + np.int32(1))
            return (at + np.int32(1), self._fit_carry(new)), stacked

        start = (np.int32(0), self.arrays)
        (_, arrays), stacked = jax.lax.scan(body, start, data, length=self.n)
        new = eqx.combine(arrays, self.rest)
        out = eqx.combine(stacked, self.beside)
        if self.is_alone:
            return new[0]
        return (*new, *out)

    def _call_step(
        self,
        state: tuple[object, ...],
        data: dict[str, object],
    ) -> object:
        carry = dict(zip(self.carried, state, strict=True))
        self.bound.arguments.update(carry | data)
        return self.step(*self.bound.args, **self.bound.kwargs)

    def _split_result(self, result: object) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """Return the new carry, and the other results."""
        count = len(self.carried)
        state = eqx.combine(self.arrays, self.rest)
        of_state = jax.tree.structure(state[0])
        # With one carry, a result of the carry's structure is the new carry itself.
        self.is_alone = count == 1 and jax.tree.structure(result) == of_state
        if self.is_alone:
            return (result,), ()
        if type(result) is not tuple or len(result) < count:
            what = (
                f"a step returns {_kind(result)}, which does not begin with"
                f" {', '.join(self.carried)}."
            )
            raise ContractError(
                self.where,
                what,
                _HANDED_ON,
                f"return ({', '.join(self.carried)}, ...) with their new values.",
                code="J217",
            )
        return result[:count], result[count:]

    def _fit_carry(self, new: tuple[object, ...]) -> tuple[object, ...]:
        """Return the arrays of the new carry, which must fit the old one."""
        state = eqx.combine(self.arrays, self.rest)
        before = tree_flatten_with_path(dict(zip(self.carried, state, strict=True)))
        after = tree_flatten_with_path(dict(zip(self.carried, new, strict=True)))
        if not are_one(before[1], after[1]):
            what = (
                f"what a step hands on has another structure: {_few(after[1])} for"
                f" {_few(before[1])}."
            )
            raise ContractError(
                self.where,
                what,
                _HANDED_ON,
                "return the same tree, with None where there was None.",
                code="J217",
            )
        for (path, old), (_, leaf) in zip(before[0], after[0], strict=True):
            self._check_leaf(_path(path), old, leaf)
        return partition(new, eqx.is_array)[0]

    def _check_leaf(self, path: str, old: Any, new: Any) -> None:
        if (
            eqx.is_array(old)
            and eqx.is_array(new)
            and (old.shape, old.dtype) == (new.shape, new.dtype)
        ):
            return
        if not eqx.is_array(old) and not eqx.is_array(new) and (old is new or _are_same(old, new)):
            return
        what, fix = (
            f"{path} comes in as {_kind(old)} and goes out as {_kind(new)}.",
            "cast or reshape it in the step.",
        )
        if not eqx.is_array(old):
            fix = (
                f"pass an array for {path}, such as jnp.asarray({old!r})."
                if isinstance(old, (int, float))
                else "leave it as it is."
            )
        raise ContractError(self.where, what, _HANDED_ON, fix, code="J217")

    def _check_size(self, path: Path, leaf: Array) -> None:
        if leaf.ndim == 0 or leaf.shape[0] != self.n:
            what, rule = (
                f"{_path(path)} is {_kind(leaf)}.",
                (
                    f"An argument of `over` has a first axis with an element for each of {self.n}"
                    " steps."
                ),
            )
            raise ContractError(
                self.where,
                what,
                rule,
                "stack one for each step (jnp.stack), or take its name out of `over`.",
                code="J210",
            )


_HANDED_ON = (
    "The carry fits into the next step: the same tree, shapes and dtypes, and no value"
    " beside arrays that changes."
)


def _are_same(old: object, new: object) -> bool:
    """Return whether two values that are not arrays are equal to a body; False if that cannot be
    decided.
    """
    try:
        return type(old) is type(new) and static_key(old) == static_key(new)
    except Unkeyed:
        return False


def _path(path: Path) -> str:
    return f"{path[0].key}{keystr(path[1:])}"


def _kind(value: Any) -> str:
    if eqx.is_array(value):
        shape = ",".join(map(str, value.shape))
        return f"{value.dtype}[{shape}]"
    if isinstance(value, (tuple, list, dict)):
        return f"a {type(value).__name__}"
    return repr(value)


def _few(treedef: object) -> str:
    text = str(treedef).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 80 else f"{text[:77]}..."
