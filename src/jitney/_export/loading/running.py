"""Calls of a program from a file: restore the weak types of its results, raise the errors of its
checks, and explain what JAX cannot do with an exported program. The program of a bucket gets filled
arrays and true sizes behind them, and its results are cut, as in a padded call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np

from ..._checks import split_code
from ..._errors import DerivativeError, ExportError
from ..._jax.equinox_checks import fail_with
from ..._jax.settings import x64_is_on
from ..._jax.trees import Tracer, set_weak_type
from ..._jax.typed import Array
from ..._program.runners.filling import FILLING
from ..._serialized.padded_cuts import read as read_cuts
from ..._view.layout import aval_parts
from ..._view.result_padding import Cut, unpadded_shape
from ..header import PaddingEntry, ProgramEntry
from ..trees import Taking, Tree, build_tree
from ..values import value_of
from .sizes import numbers_at, sizes_of

T = TypeVar("T")
Gradients = tuple[Array, ...]
"""Cotangents of the arguments of a program."""
Run = Callable[[Taking], object]
RunFlat = Callable[[Sequence[object]], Sequence[Array]]


def runner(run_flat: RunFlat, result: Tree) -> Run:
    """Return the function from the arrays of a call to its result.

    Args:
        run_flat: The program.
        result: Tree of its result.
    """

    def run(taken: Taking) -> object:
        return build_tree(
            result,
            run_flat(taken.arrays),
            taken.functions,
        )

    return run


def padded_runner(
    run: RunFlat,
    told: ProgramEntry,
    padding: PaddingEntry,
    arrays: Sequence[object],
) -> RunFlat:
    """Return the function from the arrays of calls of one size to those of their results.

    Args:
        run: The program of the bucket.
        told: Its entry in the header.
        padding: Its padding.
        arrays: Arrays of such a call.
    """
    sizes = sizes_of(told, arrays)
    shapes = [tuple(shape) for shape in padding["shapes"]]
    cuts = read_cuts(padding["cuts"])
    numbers = [value_of(value) for value in numbers_at(padding, sizes) or ()]
    behind = [*(np.asarray(sizes[name], np.int32) for name in padding["axes"]), *numbers]

    fills = [
        None if aval_parts(array)[0] == shape else shape
        for array, shape in zip(arrays, shapes, strict=True)
    ]
    # By the shapes of results, which the first call shows.
    ends: list[list[tuple[int, ...] | None]] = []

    def end_of(result: Array, cut: Cut) -> tuple[int, ...] | None:
        was = np.shape(result)
        shape = tuple(unpadded_shape(was, cut, sizes))
        return None if shape == was else shape

    def padded(given: Sequence[object]) -> Sequence[Array]:
        filled = [
            array if shape is None else FILLING.fill(array, shape)
            for array, shape in zip(given, fills, strict=True)
        ]
        results = run([*filled, *behind])
        if not ends:
            ends.append([end_of(each, cut) for each, cut in zip(results, cuts, strict=True)])
        return [
            result if shape is None else FILLING.cut(result, shape)
            for result, shape in zip(results, ends[0], strict=True)
        ]

    return padded


def flat_runner(
    call: Callable[..., Any],
    told: ProgramEntry,
    name: str,
    where: str,
) -> RunFlat:
    """Return the function from the arrays of a call to those of its result.

    Args:
        call: JAX's exported program.
        told: Its entry in the header.
        name: Name shown by profiles.
        where: Beginning of messages.
    """
    checks = told["checks"]
    weak = [aval["weak"] for aval in told["results"]]

    def flat(*arrays: Array) -> list[jax.Array]:
        out = call(*arrays)
        # An exported program does not record weak types.
        # With checks there is one result more, the flag, which stays as it is.
        typed = [
            set_weak_type(x, is_weak=True) if is_weak else x
            for x, is_weak in zip(out, weak, strict=not checks)
        ]
        return [*typed, *out[len(weak) :]]

    flat.__name__ = flat.__qualname__ = name
    jitted = jax.jit(flat)

    def run(arrays: Sequence[object]) -> Sequence[jax.Array]:
        # Errors of JAX's own, in cases that the rules of `guard_call` do not cover.
        try:
            out = jitted(*arrays)
        except NotImplementedError as error:
            if "Batching rule" not in str(error):
                raise
            raise _vmap_error(where) from error
        except TypeError as error:
            if "forward-mode" not in str(error):
                raise
            raise _not_forward(where) from error
        if checks:
            *out, flag = out
            _look_at(
                flag,
                checks,
                where,
            )
        return out

    return run


def guard_call(
    call: Callable[..., T],
    where: str,
    *,
    derivatives: int,
) -> Callable[..., T]:
    """Wrap a call of an exported program in custom rules that explain what JAX cannot do with it,
    under any transforms in between: `jit`, loops, `checkpoint`.

    The exception is forward mode of a program with a gradient: JAX refuses it itself, without
    calling a custom rule inside `jit` (jax 0.10.0 to 0.12).

    Args:
        call: The exported program.
        where: Beginning of messages.
        derivatives: Order of the highest exported derivative.
    """
    return _guard_derivatives(
        call,
        where,
        derivatives,
        lambda: _no_gradient(where),
    )


def _guard_derivatives(
    call: Callable[..., T],
    where: str,
    derivatives: int,
    error: Callable[[], Exception],
) -> Callable[..., T]:
    plain = _refuse_vmap(call, where)
    return (
        _with_gradient(
            plain,
            call,
            where,
            derivatives,
        )
        if derivatives
        else _refuse_derivative(plain, error)
    )


def _refuse_vmap(call: Callable[..., T], where: str) -> Callable[..., T]:
    @jax.custom_batching.custom_vmap
    def called(*arrays: object) -> T:
        return call(*arrays)

    def refuse(_size: int, _mapped: object, *_arrays: object) -> NoReturn:
        raise _vmap_error(where)

    called.def_vmap(refuse)
    return called


def _refuse_derivative(call: Callable[..., T], error: Callable[[], Exception]) -> Callable[..., T]:
    @jax.custom_jvp
    def called(*arrays: object) -> T:
        return call(*arrays)

    def refuse(_primals: object, _tangents: object) -> NoReturn:
        raise error()

    called.defjvp(refuse)
    return called


def _with_gradient(
    plain: Callable[..., T],
    call: Callable[..., T],
    where: str,
    derivatives: int,
) -> Callable[..., T]:
    @jax.custom_vjp
    def called(*arrays: object) -> T:
        return plain(*arrays)

    def forward(*arrays: object) -> tuple[T, tuple[object, ...]]:
        # A second derivative differentiates this function, and must find the custom rule again.
        return called(*arrays), arrays

    def backward(arrays: tuple[object, ...], cotangents: object) -> Gradients:
        return once(*arrays, cotangents)

    def gradient(*given: object) -> Gradients:
        # The residuals are the arguments: the exported VJP recomputes the forward pass.
        return jax.vjp(call, *given[:-1])[1](given[-1])

    # The gradient is a call of an exported program too, with one derivative less.
    once = _guard_derivatives(
        gradient,
        where,
        derivatives - 1,
        lambda: _no_further(where),
    )
    called.defvjp(forward, backward)
    return called


def _no_gradient(where: str) -> DerivativeError:
    return DerivativeError(
        where,
        "it was exported without its gradient.",
        "What a loaded program is differentiated by is in its file, and JAX has forward mode of no"
        " exported program.",
        "export it with vjp_order=1, or export `f.value_and_grad` or `f.jvp`.",
        code="J244",
    )


def _no_further(where: str) -> DerivativeError:
    return DerivativeError(
        where,
        "it was exported with first derivatives only.",
        "The derivatives of a loaded program are in its file, up to the order `vjp_order`.",
        "export it with vjp_order=2 or more, or `f.hessian` or `f.hvp`.",
        code="J244",
    )


def _vmap_error(where: str) -> ExportError:
    return ExportError(
        where,
        "a loaded program cannot be mapped by `jax.vmap`.",
        "JAX has no rule that maps an exported program.",
        "export it with jitney.optimize(vmap=...), or go through the elements with `jax.lax.map`.",
        code="J293",
    )


def _not_forward(where: str) -> DerivativeError:
    return DerivativeError(
        where,
        "a loaded program cannot be differentiated in forward mode.",
        "JAX has no such rule for an exported program.",
        "export `f.jvp` or `f.jacobian`, or go backwards: vjp_order=1, and `jax.grad` or"
        " `jax.vjp`.",
        code="J244",
    )


def _look_at(
    flag: object,
    checks: Sequence[Sequence[str]],
    where: str,
) -> None:
    """Raise the error of the check that failed, if one did."""
    if isinstance(flag, Tracer):
        raise ExportError(
            where,
            "it has run-time checks, and is called under `jit` or `grad`.",
            "Whether a check has failed is looked at when the results are there.",
            "call it outside, or export it without its checks.",
            code="J293",
        )
    failed = int(np.asarray(flag))
    if failed:
        check, index = split_code(failed)
        fail_with(checks[check], index)


def check_x64(told: ProgramEntry, where: str) -> None:
    """Check that 64-bit numbers are available if a program uses them: in JAX only with
    `jax_enable_x64`.

    Raises:
        ExportError: It uses them, and they are not.
    """
    wide = [
        aval
        for aval in (*told["arrays"], *told["results"])
        if aval["dtype"] in ("float64", "int64", "uint64", "complex128")
    ]
    if wide and not x64_is_on():
        raise ExportError(
            where,
            f"it takes or gives {wide[0]['dtype']}, and jax_enable_x64 is off here.",
            "It was exported with numbers of 64 bits.",
            "call it inside `with jax.enable_x64(True):`, or export it without.",
            code="J291",
        )
