"""Comparison of all processes of a run before the first call of a new key.

It runs after ShardedCalls has planned and traced a call, and wraps only the errors of later calls.
Without it, a difference would be a hang in a collective, or one sum with numbers of two programs;
with it, there is an error in every process.
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

from .._body.body import CallPlanner
from .._errors import OptionError, ProcessError, Where, repr_of, shortlist
from .._jax.trees import device_put, issubdtype
from .._jax.typed import Array, NumPyArray
from .._stages import Place
from .._stages.stage import Fn
from .._values.identity import Identity
from .._values.static_values import static_key
from .._view.layout import aval_parts, static_text
from .._view.true_sizes import split_counts
from .run import RUN

if TYPE_CHECKING:
    from .channel import Facts

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def members(mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh) -> tuple[int, ...]:
    """Processes whose devices are in a mesh; a single one if the mesh is abstract."""
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return (0,)
    return tuple(sorted({device.process_index for device in mesh.devices.flat}))


def compare_then_run(
    run: Fn,
    body: CallPlanner,
    mesh: jax.sharding.Mesh,
    jitted: jax.stages.Wrapped,
    arrays: Sequence[Any],
    given: Sequence[object],
    shardings: Sequence[Any],
) -> Fn:
    """Return the function for calls of a new program, once every process of the mesh is about to
    call it.

    Args:
        run: The function for the calls.
        body: The body that is called.
        mesh: The mesh.
        jitted: JAX's jitted function.
        arrays: Arrays of the first call, as they are sharded now.
        given: The same arrays as the caller passed them.
        shardings: Shardings that the program requires.

    Raises:
        ProcessError: Another process is about to call another program, or does not come; or an
            argument is not global.
    """
    group = members(mesh)
    if len(group) == 1:
        return run if jax.process_count() == 1 else _by_hand(run, shardings)

    where = body.core.where
    plain, counts = split_counts(given)
    planned = body.plan_call(plain, counts, mesh=mesh)
    place = planned.plan.of(Place)
    specs = () if place is None else place.specs[: len(plain)]
    paths = [leaf.path for leaf in planned.view.leaves[: len(plain)]]

    # NumPy arrays that are to be sharded over processes: each could be a part or the whole.
    split: list[tuple[int, str]] = []
    for i, (path, spec) in enumerate(zip(paths, specs, strict=True)):
        if any(spec):
            split.append((i, path))
    neither = _of_host(split, plain)

    facts = [("function", "the function", _function(where))]
    for path, x in zip(paths, plain, strict=True):
        facts.append(("array", path, _layout(x, host=path in neither)))
    for name, value in zip(body.layout.static_names(), body.statics, strict=True):
        facts.append(("static", name, _static(value)))

    devices = shortlist([str(device.id) for device in mesh.devices.flat])
    facts.append(("plan", "the mesh", f"{dict(mesh.shape)} of devices {devices}"))
    for path, spec in zip(paths, specs, strict=True):
        facts.append(("plan", f"the place of {path}", str(spec)))
    stages = planned.plan.stages
    facts += [("plan", f"stage {stage.name!r}", repr(stage.why)) for stage in stages]

    # JAX takes it for granted that local arrays have the same numbers in each process: compare
    # them by value.
    for path, x in zip(paths, plain, strict=True):
        if is_local(x) and path not in neither:
            facts.append(("value", path, digest(x)))
    lowered = jitted.lower(*map(_lowering_operand, arrays, shardings))
    facts.append(("program", "", _digest(lowered.as_text().encode())))

    compare(group, facts, where)
    # After the comparison, so that no process waits for one that has refused.
    _refuse_host(where, neither)
    return _explaining(run, where, split)


def compare(group: Sequence[int], facts: Facts, where: Where | str) -> None:
    """Compare facts between processes.

    Raises:
        ProcessError: They differ, or a process does not come.
    """
    if RUN.channel is None:
        raise ProcessError(
            where,
            f"it runs over {len(group)} processes, which jitney has not been asked to compare.",
            "Before its first step all processes compare what they are about to do.",
            "call jitney.processes.distributed() at the start; it takes over a run that"
            " jax.distributed.initialize has started.",
        )
    verdict = RUN.channel.agree(group, facts)
    if verdict:
        raise ProcessError(f"{where}: {verdict}", code="J261")


def _by_hand(run: Fn, shardings: Sequence[object]) -> Fn:
    """Wrap `run` so that NumPy arrays are put on the devices first.

    In a run of several processes JAX does not take NumPy arrays for more than one device, not even
    for a mesh of this process's devices.
    """

    def placed(*arrays: object) -> Sequence[Array]:
        on_devices = [
            device_put(x, to) if isinstance(x, np.ndarray) else x
            for x, to in zip(arrays, shardings, strict=True)
        ]
        return run(*on_devices)

    return placed


def refuse_padding(
    where: Where, mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh | None
) -> None:
    """Refuse padding over several processes.

    Raises:
        OptionError: The mesh has devices of several processes.
    """
    if mesh is not None and len(members(mesh)) > 1:
        raise OptionError(
            where,
            "`pad` over several processes is not supported yet.",
            "Padding fills on the host, which has only its part there.",
            "pass arrays of one size, or decorate a second function without `pad` for that.",
            code="J201",
        )


def _explaining(
    run: Fn,
    where: Where,
    split: Sequence[tuple[int, str]],
) -> Fn:
    """Wrap `run` so that a failure after another process has stopped is reported as that, and NumPy
    arrays in place of those that `split` names are refused in later calls too.
    """

    def explained(*arrays: object) -> Sequence[Array]:
        try:
            return run(*arrays)
        except (RuntimeError, ValueError) as error:
            stopped = "" if RUN.channel is None else RUN.channel.stop_reason()
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


def _of_host(split: Sequence[tuple[int, str]], arrays: Sequence[object]) -> list[str]:
    """Those of the arrays that lie along the mesh which are NumPy's."""
    return [path for i, path in split if not isinstance(arrays[i], jax.Array)]


def _refuse_host(where: Where, paths: Sequence[str]) -> None:
    if paths:
        raise ProcessError(
            where,
            f"{shortlist(paths)} is a NumPy array, and is sharded over the mesh of several"
            " processes.",
            "An array does not show whether each process has a part of it or all of it.",
            'jitney.processes.from_processes(x, "data") puts the parts of all processes together;'
            " jnp.asarray(x) is whole in each.",
            code="J263",
        )


def _function(where: Where) -> str:
    if where.file is None:
        return where.name
    return f"{where.name}() at {Path(where.file).name}:{where.line}"


def _layout(array: Any, *, host: bool) -> str:
    shape, dtype, weak = aval_parts(array)
    text = f"{dtype}[{','.join(map(str, shape))}]{' weak' if weak else ''}"
    if is_local(array):
        return f"{text} of NumPy" if host else text
    return f"{text} along {getattr(array.sharding, 'spec', array.sharding)}"


def _lowering_operand(array: Array, to: jax.sharding.Sharding) -> Array | jax.ShapeDtypeStruct:
    """An array of the call, or its abstract value if it is still to be moved."""
    if isinstance(array, jax.Array):
        if not array.committed or array.sharding.is_equivalent_to(to, array.ndim):
            return array
        return jax.ShapeDtypeStruct(
            array.shape,
            array.dtype,
            weak_type=array.weak_type,
            sharding=to,
        )
    # JAX refuses a NumPy array that is to be sharded over processes.
    if isinstance(array, np.ndarray) and not to.is_fully_replicated:
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=to)
    return array


def is_local(array: object) -> bool:
    """Return whether all of an array is in this process."""
    return not isinstance(array, jax.Array) or array.is_fully_addressable


def with_sharding(array: Any, to: Any) -> jax.Array:
    """The array with another sharding. A local array is taken to be the same in each process:
    nothing is sent to compare it.
    """
    if to.is_fully_addressable or not is_local(array):
        return device_put(array, to)
    # NumPy has no random keys.
    if issubdtype(array.dtype, jax.dtypes.prng_key):
        words = with_sharding(jax.random.key_data(array), to)
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(array))
    host = np.asarray(array)

    def part(index: tuple[slice, ...] | None) -> NumPyArray:
        return host[index]

    return jax.make_array_from_callback(host.shape, to, part)


def digest(array: object) -> str:
    """Short digest of the numbers of an array."""
    if isinstance(array, jax.Array) and issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return _digest(np.ascontiguousarray(array).tobytes())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _static(value: object) -> str:
    """Text of a static value that is the same in every process: short, with a digest of the whole
    value.
    """
    key = static_key(value)
    whole = _portable(key)
    # Strings are hashed with a salt per process, so the order of sets differs between processes.
    if isinstance(value, (set, frozenset)):
        text = f"{{{shortlist(sorted(map(repr_of, value)))}}}"
    else:
        text = f"a {type(value).__name__}" if _has_set(key) else static_text(value)
    shown = _ADDRESS.sub("", text)
    if len(whole) < 60 and text == repr_of(value):
        return shown
    return f"{shown} ({_digest(whole.encode())[:8]})"


def _has_set(key: object) -> bool:
    """Return whether the printed order of a key depends on the process, because of its sets."""
    if isinstance(key, tuple):
        return any(map(_has_set, key))
    return isinstance(key, frozenset)


def _portable(key: object) -> str:
    """Text of a key without addresses. Values that Python does not show are represented by their
    type; the lowered text of the program, which is compared too, distinguishes more.
    """
    if type(key) is int:
        # Hexadecimal digits have no limit in Python.
        return hex(key)
    if isinstance(key, tuple):
        return f"({', '.join(map(_portable, key))})"
    if isinstance(key, frozenset):
        return f"{{{', '.join(sorted(map(_portable, key)))}}}"
    if type(key) is Identity:
        return _portable(key())
    if isinstance(key, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{key.__module__}.{key.__qualname__}"
    return _ADDRESS.sub("", repr_of(key))
