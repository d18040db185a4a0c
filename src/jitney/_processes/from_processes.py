"""`jitney.processes.from_processes`: global arrays from the parts that the processes of a run
have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .._errors import MeshError, ProcessError
from .._jax.mesh import automatic, current, mesh_text
from .._jax.trees import device_put, is_whole, keystr, tree_flatten_with_path, tree_unflatten
from .._jax.typed import Array
from .._owners import public
from .._view.view import is_array
from .compare_processes import compare, digest, is_local, members
from .run import RUN

_WHERE = "jitney.processes.from_processes()"


@public
def from_processes(
    tree: object,
    /,
    along: str | Sequence[str],
    *,
    axis: int = 0,
    mesh: object = None,
) -> Any:
    """Combine arrays of which each process has a part. In a run of one process the part is the
    whole.

        x, y = jitney.processes.from_processes((x, y), "data")  # 4 times 32 rows: 128
        loss = step(model, x, y)  # shard={"batch": "data"}

    Each process retains its part; nothing is sent. The first time that such shapes come, all
    processes compare them. Processes that have the same part, since no device along `along`
    separates them, pass the same numbers.

    Args:
        tree: Arrays of this process; other leaves stay.
        along: Axis of the mesh over which the parts are sharded, or several.
        axis: Axis of the arrays that is cut into parts.
        mesh: The devices; those of the context if it is left out.

    Returns:
        The tree with global arrays, `axis` sharded over the mesh in the order of its devices.

    Raises:
        MeshError: There is no mesh, it has no such axis, `axis` is below 0, or this process's part
            does not divide over its devices.
        ProcessError: An array is global already, or processes differ in the shape or the dtype of
            their parts.
    """
    onto = current(mesh)
    names = (along,) if isinstance(along, str) else along
    if (
        not isinstance(names, (tuple, list))
        or not all(isinstance(name, str) for name in names)
        or not is_whole(axis)
    ):
        raise MeshError(
            _WHERE,
            f"{along=}, {axis=}.",
            "Parts are sharded over an axis of the mesh, given by its name; `axis` is a number.",
            'write jitney.processes.from_processes(x, "data").',
            code="J253",
        )

    names = tuple(names)
    if onto is None or not names or any(name not in onto.shape for name in names):
        rule = "Parts are sharded over an axis of a mesh of devices."
        if onto is not None:
            rule = f"The axes of the mesh are {mesh_text(onto)}."
        raise MeshError(
            _WHERE,
            f"there is no mesh with {' and '.join(map(repr, names)) or 'no axis'}.",
            rule,
            "call it inside `with jitney.mesh(data=-1):`, or correct the name.",
            code="J251",
        )
    if axis < 0:
        raise MeshError(
            _WHERE,
            f"axis={axis}.",
            "The axes of arrays are counted from 0 here.",
            "count it from the front.",
            code="J253",
        )

    cut = names[0] if len(names) == 1 else names
    spec = jax.sharding.PartitionSpec(*[None] * axis, cut)
    to = jax.sharding.NamedSharding(automatic(onto), spec)

    paths, treedef = tree_flatten_with_path(tree)
    leaves = [(f"the argument{keystr(path)}", leaf) for path, leaf in paths]
    parts = {name: _copy_numpy(leaf) for name, leaf in leaves if is_array(leaf)}
    for name, part in parts.items():
        _check(name, part, axis, to)

    # `make_array_from_process_local_data` shards the part over this process's devices and sends
    # nothing.
    group = members(onto)
    if len(group) > 1:
        _agree(group, parts, to, axis)
        placed = {
            name: jax.make_array_from_process_local_data(to, np.asarray(part))
            for name, part in parts.items()
        }
    else:
        placed = {name: device_put(part, to) for name, part in parts.items()}
    return tree_unflatten(treedef, [placed.get(name, leaf) for name, leaf in leaves])


def _copy_numpy(part: Array) -> Array:
    """Copy of a NumPy array: on CPUs JAX uses its memory directly, and its owner may write the next
    batch into it.
    """
    return np.array(part) if isinstance(part, np.ndarray) else part


def _check(
    name: str,
    part: Array,
    axis: int,
    to: jax.sharding.NamedSharding,
) -> None:
    if not is_local(part):
        raise ProcessError(
            _WHERE,
            f"{name} is global already.",
            "It puts together what each process has of its own.",
            "pass it as it is.",
            code="J263",
        )
    shape = tuple(part.shape)
    if len(shape) <= axis:
        raise MeshError(
            _WHERE,
            f"{name} has {len(shape)} axes.",
            f"Axis {axis} is cut into parts.",
            "pass arrays that have it.",
            code="J253",
        )
    devices = len(_slices(to, axis))
    if shape[axis] % devices:
        raise MeshError(
            _WHERE,
            f"axis {axis} of {name} has size {shape[axis]} here, which the {devices} devices of"
            f" this process along {to.spec[axis]!r} do not divide.",
            "Each device holds an equal part.",
            f"pass a multiple of {devices}.",
        )


def _slices(to: jax.sharding.NamedSharding, axis: int) -> list[int]:
    """Positions along the cut axis that this process's devices have."""
    names = to.spec[axis] or ()
    if isinstance(names, str):
        names = (names,)
    parts = math.prod(to.mesh.shape[name] for name in names)

    # The indices of an array with one element for each part are the positions.
    shape = (1,) * axis + (parts,)
    indices = to.addressable_devices_indices_map(shape).values()
    return sorted({index[axis].start or 0 for index in indices if index is not None})


def _agree(
    group: Sequence[int],
    parts: dict[str, Array],
    to: jax.sharding.NamedSharding,
    axis: int,
) -> None:
    """Compare parts of these shapes between processes, the first time that they come."""
    shapes = [(name, str(part.dtype), tuple(part.shape)) for name, part in parts.items()]
    key = (to, *shapes)
    if key in RUN.compared:
        return

    facts = [("function", "the function", _WHERE)]
    for name, dtype, shape in shapes:
        facts.append(("array", name, f"{dtype}[{','.join(map(str, shape))}]"))
    facts.append(("plan", "the place of the parts", f"{to.spec} of {dict(to.mesh.shape)}"))
    here = few_of(_slices(to, axis))
    for name, part in parts.items():
        facts.append(("value", f"part {here} of {name}", digest(part)))
    compare(group, facts, _WHERE)
    RUN.compared.add(key)


def few_of(places: Sequence[int]) -> str:
    """Text of a range of positions, such as `0 to 3`."""
    if len(places) == 1:
        return f"{places[0]}"
    return f"{places[0]} to {places[-1]}"
