"""Options under an outer transform of JAX: which of them act on such a call, and one warning for
each that does not.

`debug_nans` and `verify` look at numbers, and a traced call has none; the outer program may look at
its own.

`pad` acts under `jax.grad`, `vjp`, `jvp`, `linearize` and `vmap`: filling and cutting are
operations like any other there, and the derivative of a padded program is proven
(`_axes/padded.py`). Inside a function that is traced as a whole its sizes are constants of that
program already. `chunk` acts likewise, and its derivative is proven too (`_axes/derivative.py`);
`memory` measures a whole program, and does not act.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

import jax

from .._axes import ClosesOver, Refused, at_any_size
from .._body.body import CallPlanner
from .._body.plain import changes_of, plain_run
from .._errors import TransformWarning, format_error
from .._jax.programs.branches import branches_on
from .._jax.tracing import is_staged, mapped_in_derivative, times_differentiated
from .._jax.typed import Array
from .._owners import users_function, users_level
from .._signature.options import Options, option_texts
from .._stages import Chunk, Fill, MappedChunks
from .._verify import is_verified
from .._view.layout import aval_parts

if TYPE_CHECKING:
    from .._stages.stage import Stage

_LOOKING: ContextVar[frozenset[str]] = ContextVar("looking", default=frozenset())
"""Options (`debug_nans`, `verify`) by which jitney checks the results of the programs that are
being traced.
"""
_STAGED = "inside an outer `jit`, `scan` or the like"
_BRANCHED = "under the derivative of a map, with a branch that each element chooses"


def is_padded(body: CallPlanner, arrays: Sequence[Array]) -> bool:
    """Return whether a traced call of a function with `pad` is padded: under one derivative and any
    number of maps it is.
    """
    if _is_part_of_ours():
        return False
    options = body.core.options
    if body.is_sharded:
        where, fix = (
            "over several devices under an outer transform",
            "call it outside of one, or take its gradient with `.grad`.",
        )
    elif is_staged():
        where, fix = (
            _STAGED,
            (
                "call it outside of `jit` (`f.value_and_grad` for a gradient), or, if the outer"
                " function's annotations name the axis, pad that:"
                f" @jitney.optimize({option_texts(Options(pad=options.pad))[0]}) in place of its"
                " `jit`."
            ),
        )
    elif times_differentiated(arrays) > 1:
        where, fix = (
            "under two derivatives",
            "take them with `.hessian` or `.hvp`, which are padded.",
        )
    elif _branches_in_map(body, arrays):
        where, fix = (
            _BRANCHED,
            "map the derivative, `jax.vmap(jax.grad(f))`, in place of `jax.grad` of a map.",
        )
    else:
        return True

    # Warn only if padding would have changed something.
    if _decides(body, arrays, Fill):
        _say(
            body,
            f"it is not padded {where}",
            "It runs at exact size there, and each size is traced and compiled again.",
            fix,
        )
    return False


def is_cut(body: CallPlanner, arrays: Sequence[Array]) -> bool:
    """Return whether a traced call of a function with `chunk` or `memory` is cut: with `chunk`,
    under one derivative and any number of maps, it is.
    """
    options = body.core.options
    if (
        _is_part_of_ours()
        or options.accumulate
        or not (options.chunk or options.memory is not None)
    ):
        return False

    where, twice = "under an outer transform", times_differentiated(arrays) > 1
    if is_staged():
        where, fix = (
            _STAGED,
            (
                "call it outside of `jit` (`f.value_and_grad` for a gradient), or, if the outer"
                " function's annotations name the axis, cut that:"
                f" @jitney.optimize({option_texts(_cutting(options))[0]}) in place of its `jit`."
            ),
        )
    elif _branches_in_map(body, arrays):
        where, fix = (
            _BRANCHED,
            "map the derivative, `jax.vmap(jax.grad(f))`, in place of `jax.grad` of a map.",
        )
    elif options.chunk and options.memory is None and not body.is_sharded and not twice:
        return True
    elif twice:
        where, fix = "under two derivatives", "take them with `.hessian` or `.hvp`, which are cut."
    elif times_differentiated(arrays):
        fix = "take its derivative with `.grad` or the like, which are cut."
    else:
        fix = "map over it with @jitney.optimize(vmap=...), which is cut inside."

    if _decides(body, arrays, Chunk, MappedChunks):
        rule = (
            "There it acts in one program that is the outermost; here all of it is there at once."
        )
        _say(body, f"it is not cut into chunks {where}", rule, fix)
    return False


def _branches_in_map(body: CallPlanner, arrays: Sequence[Array]) -> bool:
    """Return whether JAX could not transpose a proven derivative of these calls: of a branch that
    `jax.vmap` makes a select of, inside of the derivative.
    """
    mapped = mapped_in_derivative(arrays)
    if mapped is None or not any(mapped):
        return False
    key = tuple(map(aval_parts, arrays))
    known = body.branching.get((key, tuple(mapped)))
    if known is None:
        with body.numbers():
            structs = [
                jax.ShapeDtypeStruct(shape, dtype, weak_type=is_weak)
                for shape, dtype, is_weak in key
            ]
            jaxpr = jax.make_jaxpr(body.plainly)(*structs)
        known = body.branching[key, tuple(mapped)] = branches_on(jaxpr, mapped)
    return known


def _cutting(options: Options) -> Options:
    """Option that cuts a function, alone."""
    return Options(chunk=options.chunk) if options.chunk else Options(memory=options.memory)


def warn_uncut(body: CallPlanner, refusal: Refused) -> None:
    """Warn that a derivative of a function with `chunk` cannot be cut, with the reason."""
    what = (
        f"it is not cut into chunks under an outer transform: {refusal.place or 'it'}"
        f" {refusal.what}"
    )
    rule = (
        "Under a derivative of JAX's a function is cut if its derivative is proven to be; here all"
        " of it is there at once."
    )
    fix = (
        "make that value an argument of the function."
        if isinstance(refusal, ClosesOver)
        else "take its derivative with `.grad` or the like, which cut it, or say what to change."
    )
    _say(body, what, rule, fix)


def warn_missing_checks(body: CallPlanner) -> None:
    """Warn that nobody checks the results of a traced call, if an option asks for it and no outer
    program of jitney's does it.
    """
    options, outer = body.options, _LOOKING.get()
    if plain_run() is not None:
        return

    if options.debug_nans and "debug_nans" not in outer:
        rule = "There its results are not numbers yet, so that a NaN is passed on."
        fix = (
            "put debug_nans=True on the outermost function, and take a derivative with `.grad` or"
            " the like, which are looked at."
        )
        _say(
            body,
            "`debug_nans` looks at nothing under an outer transform",
            rule,
            fix,
        )

    if options.verify and "verify" not in outer and changes_of(options, body.core.fn()):
        rule = (
            "There its results are not numbers yet, which could be compared with those of plain"
            " `jax.jit`."
        )
        fix = (
            "put verify=True on the outermost function, and take a derivative with `.grad` or the"
            " like, which are compared."
        )
        _say(
            body,
            "`verify` compares nothing under an outer transform",
            rule,
            fix,
        )


@contextmanager
def looking(body: CallPlanner) -> Generator[None]:
    """Scope in which a body is traced: programs that it calls are parts of a program whose results
    are checked, if the body's own results are.
    """
    options = body.options
    looks = {"debug_nans": options.debug_nans, "verify": is_verified(options)}
    asked = (
        frozenset[str]()
        if body.request.nested
        else frozenset(name for name, is_asked in looks.items() if is_asked)
    )
    token = _LOOKING.set(_LOOKING.get() | asked)
    try:
        yield
    finally:
        _LOOKING.reset(token)


def _is_part_of_ours() -> bool:
    """Return whether a size is a symbol of an outer program of jitney's, or a function runs as it
    was written.
    """
    return at_any_size() or plain_run() is not None


def _decides(
    body: CallPlanner,
    arrays: Sequence[object],
    kind: type[Stage],
    *others: type[Stage],
) -> bool:
    """Return whether the stage, or another that it decides on, would act without the outer
    transform.
    """
    with body.numbers():
        view = body.plan_call(arrays, jit=False).view
        stage = kind.plan(view, replace(body.request, nested=False))
        return isinstance(stage, (kind, *others))


def _say(
    body: CallPlanner,
    what: str,
    rule: str,
    fix: str,
) -> None:
    if body.core.counters.warn_once(what):
        text = format_error(
            body.core.where,
            f"{what}, called by {users_function()}.",
            rule,
            fix,
        )
        warnings.warn(text, TransformWarning, stacklevel=users_level())
