"""How calls of a program out of a file run: its results are typed as they were, its checks raise, and what JAX cannot do is a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import primitives

from .._checks import parted
from .._errors import DerivativeError, ExportError, sentence
from .._jax.equinox_checks import fail_with
from .._jax.trees import Tracer, is_a
from .trees import Taking, Tree, built

_jax: Any = jax
_primitives: Any = primitives
_convert: Any = _primitives.convert_element_type_p
Run = Callable[[Taking], Any]


def runner(call: Callable[..., Any], told: Mapping[str, Any], result: Tree, name: str, where: str) -> Run:
    """From what was taken out of the arguments of a call to its result.

    Args:
        call: JAX's exported program.
        told: What the header says of it.
        result: The tree of its result.
        name: What profiles show.
        where: What messages begin with.
    """
    checks = told["checks"]
    weak = [aval["weak"] for aval in told["results"]]

    def flat(*arrays: Any) -> list[Any]:
        out = call(*arrays)
        typed = [_weakened(x) if is_weak else x for x, is_weak in zip(out, weak, strict=not checks)]
        return [*typed, *out[len(weak) :]]

    flat.__name__ = flat.__qualname__ = name
    jitted = _jax.jit(flat)

    def run(taken: Taking) -> Any:
        try:
            out = jitted(*taken.arrays)
        except NotImplementedError as error:
            if "Batching rule" not in str(error):
                raise
            raise _unmapped(where) from error
        except TypeError as error:
            if "forward-mode" not in str(error):
                raise
            raise _not_forward(where) from error
        if checks:
            *out, flag = out
            _look_at(flag, checks, where)
        return built(result, out, taken.functions)

    return run


def _weakened(x: Any) -> Any:
    """A result as weakly typed as it was: an exported program has forgotten that."""
    return _convert.bind(x, new_dtype=x.dtype, weak_type=True, sharding=None)


def without_derivative(call: Callable[..., Any], where: str) -> Callable[..., Any]:
    """A call whose derivative is a sentence."""

    @_jax.custom_vjp
    def called(*arrays: Any) -> Any:
        return call(*arrays)

    def forward(*arrays: Any) -> Any:
        return called(*arrays), None

    def refuse(_kept: Any, _cotangents: Any) -> Any:
        raise DerivativeError(
            sentence(where, "it was exported without its gradient.", "What a loaded program is differentiated by is in its file.",
                     "export it with vjp_order=1, or export `f.value_and_grad`.")
        )  # fmt: skip

    called.defvjp(forward, refuse)
    run: Callable[..., Any] = called
    return run


def _unmapped(where: str) -> ExportError:
    return ExportError(
        sentence(where, "a loaded program cannot be mapped by `jax.vmap`.", "JAX has no rule that maps an exported program.",
                 "export it with jitney.optimize(vmap=...), or go through the elements with `jax.lax.map`.")
    )  # fmt: skip


def _not_forward(where: str) -> DerivativeError:
    return DerivativeError(
        sentence(where, "a loaded program cannot be differentiated in forward mode.", "JAX has no such rule for an exported program.",
                 "export `f.jvp`, or go backwards: vjp_order=1 and `jax.grad`, `jax.vjp` or `jax.jacrev`.")
    )  # fmt: skip


def _look_at(flag: Any, checks: Sequence[Sequence[str]], where: str) -> None:
    """Raise the error of the check that failed, if one has."""
    if is_a(flag, Tracer):
        raise ExportError(
            sentence(where, "it has run-time checks, and is called under `jit` or `grad`.", "Whether a check has failed is looked at when "
                     "the results are there.", "call it outside, or export it without its checks.")
        )  # fmt: skip
    failed = int(np.asarray(flag))
    if failed:
        check, index = parted(failed)
        fail_with(checks[check], index)


def check_x64(told: Mapping[str, Any], where: str) -> None:
    """Whether the numbers of a program are there: those of 64 bits are, in JAX, where `jax_enable_x64` is on."""
    wide = [aval for aval in (*told["arrays"], *told["results"]) if aval["dtype"] in ("float64", "int64", "uint64", "complex128")]
    if wide and not _jax.config.jax_enable_x64:
        raise ExportError(
            sentence(where, f"it takes or gives {wide[0]['dtype']}, and jax_enable_x64 is off here.",
                     "It was exported with numbers of 64 bits.", "call it inside `with jax.enable_x64(True):`, or export it without.")
        )  # fmt: skip
