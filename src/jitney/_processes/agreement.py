"""Before the first call of a new key, all processes of a run compare what they are about to do.

It stands where ShardedCalls has planned and traced a call, and wraps nothing but the errors of
later ones. What would else be a hang in a collective, or numbers of two programs in one sum, is a
message in every process.
"""

from __future__ import annotations

import hashlib
import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._body.body import Body
from .._errors import OptionError, ProcessError, Where, few, repr_of
from .._jax.trees import device_put, is_a, issubdtype, type_of
from .._signature.identity import Identity
from .._signature.static_values import static_key
from .._stages import Place
from .._stages.stage import Fn
from .._view.layout import described, static_text
from .._view.true_sizes import parted
from .run import RUN

if TYPE_CHECKING:
    from .channel import Facts

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_jax: Any = jax


def members(mesh: Any) -> tuple[int, ...]:
    """The processes whose devices a mesh has; one, where it is abstract."""
    if is_a(mesh, jax.sharding.AbstractMesh):
        return (0,)
    return tuple(sorted({device.process_index for device in mesh.devices.flat}))


def agreed(
    run: Fn,
    body: Body,
    mesh: Any,
    jitted: Any,
    arrays: Sequence[Any],
    given: Sequence[Any],
    shardings: Sequence[Any],
) -> Fn:
    """A new program's calls, once every process of the mesh is about to make them.

    Args:
        run: How they run.
        body: Whose they are.
        mesh: Where.
        jitted: JAX's function.
        arrays: Of the first one, as they lie.
        given: As they were given.
        shardings: Where they shall lie.

    Raises:
        ProcessError: Another process is about to do something else, or does not come; or an
            argument is not global.
    """
    group = members(mesh)
    if len(group) == 1:
        return run if _jax.process_count() == 1 else _by_hand(run, shardings)
    where = body.core.where
    plain, counts = parted(given)
    planned = body.planned(plain, counts, mesh=mesh)
    place = planned.plan.of(Place)
    specs = () if place is None else place.specs[: len(plain)]
    leaves = planned.view.leaves[: len(plain)]
    split = [
        (i, leaf.path)
        for i, (leaf, spec) in enumerate(zip(leaves, specs, strict=True))
        if any(spec)
    ]
    neither = _of_host(split, plain)
    # What is this process's own counts as the same in each: JAX takes that for granted.
    facts = [
        ("function", "the function", _function(where)),
        *[
            ("array", leaf.path, _laid_out(x, host=leaf.path in neither))
            for leaf, x in zip(leaves, plain, strict=True)
        ],
        *[
            ("static", name, _static(value))
            for name, value in zip(body.layout.static_names(), body.statics, strict=True)
        ],
        (
            "plan",
            "the mesh",
            (
                f"{dict(mesh.shape)} of devices"
                f" {few([str(device.id) for device in mesh.devices.flat])}"
            ),
        ),
        *[
            ("plan", f"the place of {leaf.path}", str(spec))
            for leaf, spec in zip(leaves, specs, strict=True)
        ],
        *[("plan", f"stage {stage.name!r}", repr(stage.why)) for stage in planned.plan.stages],
        *[
            ("value", leaf.path, digest(x))
            for leaf, x in zip(leaves, plain, strict=True)
            if is_local(x) and leaf.path not in neither
        ],
        ("program", "", _digest(jitted.lower(*map(_lying, arrays, shardings)).as_text().encode())),
    ]
    compare(group, facts, where)
    _refuse_host(where, neither)  # after it, so that no process waits for one that has refused
    return _explaining(run, where, split)


def compare(group: Sequence[int], facts: Facts, where: Where | str) -> None:
    """Compare facts between processes.

    Raises:
        ProcessError: They differ, or a process does not come.
    """
    if RUN.channel is None:
        raise ProcessError(
            where,
            f"it runs over {len(group)} processes, which jitney has not been told to compare.",
            "Before its first step all processes compare what they are about to do.",
            "call jitney.distributed() at the start; it takes over a run that"
            " jax.distributed.initialize has started.",
        )
    verdict = RUN.channel.agree(group, facts)
    if verdict:
        raise ProcessError(f"{where}: {verdict}", code="J261")


def _by_hand(run: Fn, shardings: Sequence[Any]) -> Fn:
    """In a run of several processes JAX takes no NumPy arrays for more than one device, on a mesh
    of this process's own neither.
    """

    def placed(*arrays: Any) -> Any:
        return run(
            *[
                device_put(x, to) if is_a(x, np.ndarray) else x
                for x, to in zip(arrays, shardings, strict=True)
            ]
        )

    return placed


def refuse_padding(where: Where, mesh: Any) -> None:
    """Say that padding is not there over several processes.

    Raises:
        OptionError: The mesh has several.
    """
    if mesh is not None and len(members(mesh)) > 1:
        raise OptionError(
            where,
            "`pad` over several processes is not there yet.",
            "Padding fills on the host, which has only its part there.",
            "pass arrays of one size, or decorate a second function without `pad` for that.",
            code="J201",
        )


def _explaining(run: Fn, where: Where, split: Sequence[tuple[int, str]]) -> Fn:
    """Where a call fails after another process has stopped, say that; and where a later call has
    NumPy's arrays in place of those that `split` names.
    """

    def explained(*arrays: Any) -> Any:
        try:
            return run(*arrays)
        except (RuntimeError, ValueError) as error:
            stopped = "" if RUN.channel is None else RUN.channel.stopped()
            if not stopped:
                _refuse_host(where, _of_host(split, arrays))
                raise
            raise ProcessError(
                where,
                f"{stopped}.",
                "No process can go on without the others.",
                "start all again from the last checkpoint.",
                code="J262",
            ) from error

    return explained


def _of_host(split: Sequence[tuple[int, str]], arrays: Sequence[Any]) -> list[str]:
    """Those of the arrays that lie along the mesh which are NumPy's."""
    return [path for i, path in split if not is_a(arrays[i], jax.Array)]


def _refuse_host(where: Where, paths: Sequence[str]) -> None:
    if paths:
        raise ProcessError(
            where,
            f"{few(paths)} is a NumPy array, and lies along the mesh of several processes.",
            "Whether each process has a part of it, or all of it, cannot be told from an array.",
            'jitney.from_processes(x, "data") puts the parts of all processes together;'
            " jnp.asarray(x) is whole in each.",
            code="J263",
        )


def _function(where: Where) -> str:
    return (
        where.name
        if where.file is None
        else f"{where.name}() at {Path(where.file).name}:{where.line}"
    )


def _laid_out(array: Any, *, host: bool) -> str:
    shape, dtype, weak = described(array)
    text = f"{dtype}[{','.join(map(str, shape))}]{' weak' if weak else ''}"
    if is_local(array):
        return f"{text} of NumPy" if host else text
    return f"{text} along {getattr(array.sharding, 'spec', array.sharding)}"


def _lying(array: Any, to: Any) -> Any:
    """An array of the call, or what stands for it where it is still to be moved."""
    if is_a(array, jax.Array):
        right = not array.committed or array.sharding.is_equivalent_to(to, array.ndim)
        return (
            array
            if right
            else jax.ShapeDtypeStruct(
                array.shape, array.dtype, weak_type=array.weak_type, sharding=to
            )
        )
    if is_a(array, np.ndarray) and not to.is_fully_replicated:  # which JAX refuses
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=to)
    return array


def is_local(array: Any) -> bool:
    """Whether an array is this process's own."""
    return not is_a(array, jax.Array) or array.is_fully_addressable


def moved_to(array: Any, to: Any) -> Any:
    """An array where it shall lie. One that each process has of its own is taken as the same in
    each: nothing is sent to compare it.
    """
    if to.is_fully_addressable or not is_local(array):
        return device_put(array, to)
    if issubdtype(array.dtype, jax.dtypes.prng_key):
        return _jax.random.wrap_key_data(
            moved_to(_jax.random.key_data(array), to), impl=_jax.random.key_impl(array)
        )
    host = np.asarray(array)

    def part(index: Any) -> Any:
        return host[index]

    return _jax.make_array_from_callback(host.shape, to, part)


def digest(array: Any) -> str:
    """The numbers of an array in a few letters."""
    if is_a(array, jax.Array) and issubdtype(array.dtype, jax.dtypes.prng_key):
        array = _jax.random.key_data(array)
    return _digest(np.ascontiguousarray(array).tobytes())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _static(value: Any) -> str:
    """A static value as every process would write it: short for people, with a digest of all of it
    behind.
    """
    key = static_key(value)
    whole = _portable(key)
    if is_a(value, (set, frozenset)):
        text = f"{{{few(sorted(map(repr_of, value)))}}}"
    else:
        text = f"a {type(value).__name__}" if _has_set(key) else static_text(value)
    return _ADDRESS.sub("", text) + (
        "" if len(whole) < 60 and text == repr_of(value) else f" ({_digest(whole.encode())[:8]})"
    )


def _has_set(key: Any) -> bool:
    """Whether the order in which a value is written is of this process: that of its sets."""
    return is_a(key, frozenset) or (is_a(key, tuple) and any(map(_has_set, key)))


def _portable(key: Any) -> str:
    """A key in words. What Python does not show is told by its type; the text of the program, which
    is compared too, tells more.
    """
    if type_of(key) is int:
        return hex(key)  # which has no limit of digits
    if is_a(key, tuple):
        return f"({', '.join(map(_portable, key))})"
    if is_a(key, frozenset):
        return f"{{{', '.join(sorted(map(_portable, key)))}}}"
    if type(key) is Identity:
        return _portable(key())
    if is_a(key, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{key.__module__}.{key.__qualname__}"
    return _ADDRESS.sub("", repr_of(key))
