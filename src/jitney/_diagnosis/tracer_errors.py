"""Errors for the user from JAX's errors about traced values, deleted buffers and the like.

Each function returns an error that names the argument, the line and a fix, or None if the cause is
another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from .._errors import (
    AxisError,
    ContractError,
    DonationError,
    PrecisionError,
    TraceError,
    Where,
)
from .._jax.trees import is_of_numbers
from .._jax.typed import Array
from .._owners import user_line
from .._signature.options import Options
from .needed_values import Kind, need_of

_RULES: dict[Kind, str] = {
    "value": (
        "While a function is traced, arrays have a shape and a dtype but no value: `if`, `int()`,"
        " `range()` and NumPy need one."
    ),
    "shape": (
        "While a function is traced, arrays have a shape and a dtype but no value, and a shape is"
        " made of known numbers."
    ),
    "slice": (
        "While a function is traced, arrays have no value, and how many elements a slice takes is"
        " the shape of what it gives."
    ),
    "mask": (
        "While a function is traced, arrays have no value, and how many elements a mask takes is a"
        " shape."
    ),
    "size": (
        "While a function is traced, arrays have no value, and how many elements there are is the"
        " shape of what it gives."
    ),
    "key": (
        "While a function is traced, arrays have no value: a key, or an argument that JAX holds"
        " static, needs one."
    ),
}
_CODES: dict[Kind, str] = {
    "value": "J107",
    "shape": "J270",
    "slice": "J270",
    "mask": "J270",
    "size": "J270",
    "key": "J271",
}
_DATA: dict[Kind, str] = {
    "value": (
        "if it is data, keep it an array: jax.numpy in place of NumPy, no `float()` or `.item()`; "
        "and decide with jnp.where, jax.lax.cond or jax.lax.while_loop."
    ),
    "shape": (
        "if it is the size of an array, take it from that array (`x.shape[0]`), and share programs"
        " between sizes with `pad`."
    ),
    "slice": (
        "if it is data, take a fixed number with jax.lax.dynamic_slice(x, (start,), (length,)), or"
        " keep the shape: jnp.where(jnp.arange(x.shape[0]) < n, x, 0)."
    ),
    "key": "if it is data, use jax.lax.switch, or index an array with it.",
}
_KEEP = {
    "mask": (
        "keep the shape with jnp.where(mask, x, 0), for x[mask], or jnp.where(mask, y, x), for"
        " x.at[mask].set(y); or say how many at most: x.at[jnp.nonzero(mask, size=10,"
        ' fill_value=len(x))].get(mode="fill", fill_value=0).'
    ),
    "size": (
        "say how many at most with `size=` (and `fill_value=`), or keep the shape with the three"
        " arguments of jnp.where."
    ),
}


def trace_error(
    error: Exception,
    where: Where,
    paths: Sequence[str],
    arrays: Sequence[Array],
    *,
    eager: bool = False,
) -> TraceError | None:
    """Error for a function that needs a concrete value while it is traced; None for other
    exceptions.

    Args:
        error: Exception that the trace has raised.
        where: The function.
        paths: Names of the arrays of the call.
        arrays: The arrays.
        eager: Whether it was traced un-jitted, by another transform.
    """
    need = need_of(error, paths)
    if need is None:
        return None
    arguments = [paths[number] for number in need.arguments if number < len(paths)]
    line = user_line(error)
    what = f"{line or 'a line'} needs a concrete value"
    what += f", which depends on {_listing(arguments)}." if arguments else "."
    known = [number for number in need.arguments if number < len(paths)]
    scalars = [paths[number] for number in known if np.ndim(arrays[number]) == 0]
    are_all = len(scalars) == len(arguments)
    fix = _KEEP.get(need.kind) or _fix(need.kind, scalars if are_all else ())
    if eager:
        fix += " Un-jitted it fails too, because `vmap`, `remat` or an outer transform traces it."
    # A key fails un-jitted too: arrays are not hashable.
    elif need.kind != "key":
        fix += ' To run this function un-jitted, say @optimize(on_trace_error="eager").'
    return TraceError(
        where,
        what,
        _RULES[need.kind],
        fix,
        code=_CODES[need.kind],
    )


def _fix(kind: Kind, scalars: Sequence[str]) -> str:
    """Fix for a kind of need; values computed from larger arrays, or from no argument, are data."""
    if not scalars:
        return _DATA[kind].removeprefix("if it is data, ")
    as_data = _DATA[kind]
    return " ".join([*map(_static, scalars), as_data[0].upper() + as_data[1:]])


def _static(path: str) -> str:
    """Fix for a scalar that takes few values: a Python number, since JAX traces all that is
    computed from arrays, even if these are static.
    """
    if path.isidentifier():
        return (
            f'if {path!r} takes few values, declare it static, @optimize(static="{path}"), pass a'
            " Python number, and annotate it so."
        )
    return (
        f"if {path!r} takes few values, pass a Python number there, which is static where no"
        " annotation says `float` or array."
    )


def no_number(
    where: Where,
    arrays: Sequence[object],
    paths: Sequence[str],
    *,
    called: bool = True,
) -> ContractError | None:
    """Error for an argument that JAX does not take; None if there is none.

    Such are arrays of text, objects or times, numbers in another byte order, and abstract values in
    a call.
    """
    for array, path in zip(arrays, paths, strict=True):
        dtype = array.dtype if isinstance(array, (np.ndarray, np.generic)) else None
        if dtype is not None and not is_of_numbers(dtype):
            what = f"{'an array' if isinstance(array, np.ndarray) else 'a scalar'} of {dtype}"
            fix = "convert it to numbers, or pass it inside something static."
            # JAX takes native byte order only.
            if not dtype.isnative and is_of_numbers(dtype.newbyteorder("=")):
                what += ", in the byte order of other machines"
                fix = f"pass {path}.astype({dtype.newbyteorder('=').name!r})."
        elif called and isinstance(array, jax.ShapeDtypeStruct):
            what, fix = (
                "a shape, and no array",
                "pass an array; shapes are for `compile`, `plan` and `lower`.",
            )
        else:
            continue
        return ContractError(
            where, f"{path!r} is {what}.", "JAX computes with arrays of numbers.", fix, code="J213"
        )
    return None


def unbound_axis_error(
    error: NameError,
    where: Where,
    mapped: Collection[str],
    axes: Collection[str],
) -> AxisError | None:
    """Error for a function that names an axis of jitney in a collective; None for other exceptions.

    Args:
        error: NameError of any name.
        where: The function.
        mapped: Axes that `vmap` adds.
        axes: Axes of the annotations.
    """
    # Words of jax 0.10.2 and 0.12.0.1.
    found = re.search(r"[Uu]nbound axis name: (\w+)", str(error))
    if found is None or found[1] not in {*mapped, *axes}:
        return None
    name = found[1]
    if name in mapped:
        rule = (
            "An element of a mapped axis sees itself alone: `vmap` gives its axis no name within"
            " the function."
        )
        fix = (
            f'name it in the annotations in place of `vmap`, as x: Float[Array, "{name}"], and'
            " write jnp.mean(x, axis=0); or map within the function, by jax.vmap(...,"
            f' axis_name="{name}").'
        )
    else:
        rule = (
            "The name of an axis in an annotation is for contracts and options; collectives take"
            " axes of `jax.vmap` and `jax.shard_map`."
        )
        fix = "reduce along its position, as jnp.sum(x, axis=0) or jnp.mean(x, axis=0)."
    line = user_line(error)
    return AxisError(
        where, f"{line or 'a line'} names axis {name!r} in a collective.", rule, fix, code="J234"
    )


def over_error(
    error: Exception,
    where: Where,
    fn: object,
    options: Options,
) -> TraceError | None:
    """Error for a rule of differentiation that reads a value of the earlier trace by `roll`,
    `remat` or `memory`; None for other exceptions.

    `fn` is a derivative, which has these options as attributes of its own, or any function.
    """
    if not isinstance(error, jax.errors.UnexpectedTracerError):
        return None
    chosen = {
        name: getattr(fn, name, None) or getattr(options, name)
        for name in ("roll", "remat", "memory")
    }
    named = ", ".join(f"{name}={value!r}" for name, value in chosen.items() if value)
    if not named:
        return None
    return TraceError(
        where,
        f"a value of a trace that is over is read, under {named}.",
        "The function is traced as a program first, as `jax.checkpoint` does. A rule of"
        " `jax.custom_vjp` or `jax.custom_jvp` that closes over what was computed there runs later,"
        " and cannot read it.",
        "give the rule that value as an argument of its function; or leave the option out, if the"
        " value does not depend on what the derivative is taken by.",
        code="J272",
    )


def donation_error(
    error: Exception,
    where: Where,
    arrays: Sequence[Array],
    paths: Sequence[str],
    donated: Sequence[int],
) -> DonationError | None:
    """Error for a donated buffer that is used again or passed twice; None for other exceptions."""
    # The message of a failed check quotes source code, which may contain these words.
    if isinstance(error, eqx.EquinoxRuntimeError) or not re.search("deleted|donate", str(error)):
        return None
    for array, path in zip(arrays, paths, strict=True):
        # A buffer that an earlier call took.
        if isinstance(array, jax.Array) and not isinstance(array, Tracer) and array.is_deleted():
            return DonationError(
                where,
                f"the buffer of {path!r} has been donated to an earlier call.",
                "A donated buffer is gone once the call that took it has started.",
                "use what that call returned, pass a copy (jnp.copy), or take the name out of"
                " `donate`.",
            )
    # A buffer that this call takes and reads.
    twice = _passed_twice(arrays, donated)
    if twice is None:
        return None
    return DonationError(
        where,
        f"{paths[twice[0]]!r} and {paths[twice[1]]!r} are the same buffer, and {paths[twice[0]]!r}"
        " is donated.",
        "A donated buffer is overwritten, so nothing else in the call may read it.",
        "pass a copy (jnp.copy) for one of them, or take the name out of `donate`.",
        code="J299",
    )


def low_product_error(error: Exception, where: Where) -> PrecisionError | None:
    """Error for a product of low-precision factors that XLA fuses for CPUs without a kernel for it
    (jaxlib 0.10.2 and 0.12.0.1); None for other exceptions.
    """
    if "Unsupported element type for DotThunk::Execute" not in str(error):
        return None
    return PrecisionError(
        where,
        "XLA has compiled a product of low factors for this CPU that it cannot run.",
        "A fusion of its CPU compiler leaves some products without a kernel: those of a masked"
        " transpose, as by `pad`.",
        "set XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= before jax is imported, which turns"
        " that fusion off.",
        code="J315",
    )


def _passed_twice(arrays: Sequence[Array], donated: Sequence[int]) -> tuple[int, int] | None:
    """Positions of a donated array and of another with the same buffer."""
    pointers = [_pointer(array) for array in arrays]
    for i in donated:
        for j, other in enumerate(pointers):
            if i != j and pointers[i] is not None and pointers[i] == other:
                return i, j
    return None


def _pointer(array: object) -> int | None:
    if (
        isinstance(array, np.ndarray)
        or not isinstance(array, jax.Array)
        or len(array.devices()) != 1
    ):
        return None
    return array.unsafe_buffer_pointer()


def _listing(names: Sequence[str]) -> str:
    return " and ".join(repr(name) for name in names)
