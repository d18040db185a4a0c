"""Data that a file has for one program: trees of its arguments, arrays that it is bound to, shapes
and dtypes, and JAX's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from ..._errors import ContractError, ExportError, Where
from ..._jax.stand_ins import unflatten_stand_ins
from ..._jax.trees import extended, issubdtype, words_of_keys
from ..._jax.typed import Array, Aval
from ..._program.entry import Specialization
from ..._signature.hints import ArrayHint, ScalarHint
from ..._view.view import LeafHint
from ..header import ArrayEntry, BoundEntry, ProgramEntry
from ..trees import (
    Slot,
    StaticLeaf,
    Tree,
    tree_to_data,
)
from ..values import NoData
from .lowering import ExportLowered


@dataclass(frozen=True)
class Part:
    """A lowered program with the data that a file has for it.

    Args:
        told: Its entry in the header.
        arguments: Trees of its arguments, by name.
        bound: Arrays that it is bound to: the header entry and the bytes of each.
        content: JAX's serialised bytes.
    """

    told: ProgramEntry
    arguments: dict[str, Tree]
    bound: list[tuple[BoundEntry, bytes]]
    content: bytes


def serialize_program(known: ExportLowered, vjp_order: int, where: Where) -> bytes:
    """Serialise a program with its derivatives, which JAX computes here.

    Raises:
        ExportError: It cannot be differentiated or serialised.
    """
    try:
        return bytes(known.exported.serialize(vjp_order=vjp_order))
    except (ValueError, NotImplementedError) as error:
        raise ExportError(
            where,
            f"JAX cannot write it: {str(error).strip().splitlines()[0]}",
            f"With vjp_order={vjp_order} a file holds what `jax.grad` of the loaded function is.",
            "export it without vjp_order, or change what cannot be differentiated.",
        ) from error


def argument_trees(
    entry: Specialization,
    arrays: Sequence[Array],
    bound: Sequence[str],
    where: Where,
) -> dict[str, Tree]:
    """Return the trees of the arguments that are not bound, by name."""
    layout = entry.layout
    view = layout.view(
        entry.core.contract,
        arrays,
        entry.statics,
    )

    # Rebuild the argument structure with slots for arrays and held values for static leaves.
    leaves: list[Slot | StaticLeaf | None] = [None] * (len(layout.dynamic) + len(layout.static))
    arrays_of = zip(
        layout.dynamic,
        view.leaves,
        strict=True,
    )
    for number, (i, leaf) in enumerate(arrays_of):
        leaves[i] = Slot(number, _scalar(leaf.hint, is_number=i in layout.numbers))
    for i, value in zip(layout.static, entry.statics, strict=True):
        leaves[i] = StaticLeaf(value)

    names = [parameter.name for parameter in entry.core.contract.parameters]
    arguments = unflatten_stand_ins(layout.whole, leaves)
    trees = zip(
        names,
        arguments,
        strict=True,
    )
    return {name: portable_data(tree, name, where) for name, tree in trees if name not in bound}


def _scalar(hint: LeafHint, *, is_number: bool) -> str | None:
    if isinstance(hint, ScalarHint):
        return hint.kind
    if not is_number:
        return None
    converts = isinstance(hint, ArrayHint) and not hint.allows(np.dtype(np.int32))
    return "float" if converts else "number"


def portable_data(tree: object, path: str, where: Where) -> Tree:
    try:
        return tree_to_data(tree, path)
    except NoData as part:
        raise ExportError(
            where,
            f"{part.path!r} is or holds {part.what}, which a file cannot hold.",
            "It holds arrays, plain values, what has a name, and tuples, lists, dicts, named tuples"
            " and Equinox modules of these.",
            "pass and return such, or define a function or a class at the top of its module.",
        ) from part


def array_entry(aval: Aval, path: str) -> ArrayEntry:
    shape = [int(size) if isinstance(size, (int, np.integer)) else str(size) for size in aval.shape]
    return {
        "path": path,
        "shape": shape,
        "dtype": str(aval.dtype),
        "weak": bool(aval.weak_type),
    }


def bound_arrays(
    entry: Specialization,
    examples: Sequence[Array | jax.ShapeDtypeStruct],
    arrays: Sequence[Array],
    bound: Sequence[str],
    where: Where,
) -> list[tuple[BoundEntry, bytes]]:
    """Return the arrays that the program is bound to, which the file holds by value."""
    entries: list[tuple[BoundEntry, bytes]] = []
    pairs = zip(
        entry.layout.dynamic,
        examples,
        arrays,
        strict=True,
    )
    for number, (i, array, taken) in enumerate(pairs):
        argument, path = entry.layout.names[i]
        if argument not in bound:
            continue
        # `arrays_at` returns the example itself only if its shape is unchanged.
        if taken is not array:
            raise ContractError(
                where,
                f"{path!r}, to which it is bound, has another size than was asked for.",
                "What a program is bound to goes into the file as it is.",
                "leave that axis out of `sizes`.",
                code="J216",
            )
        if isinstance(array, jax.ShapeDtypeStruct):
            raise ExportError(
                where,
                f"{path!r}, to which it is bound, has no values.",
                "What a program is bound to goes into the file.",
                "bind it to arrays, or export the function and pass them when it is loaded.",
            )
        is_key = isinstance(array, jax.Array) and issubdtype(array.dtype, extended)
        # with the dtype that JAX gives it
        host = words_of_keys(array) if is_key else np.asarray(jax.numpy.asarray(array))
        impl = str(jax.random.key_impl(array)) if is_key else None
        data: BoundEntry = {
            "number": number,
            "dtype": host.dtype.name,
            "shape": list(host.shape),
            "impl": impl,
        }
        entries.append((data, host.tobytes()))
    return entries
