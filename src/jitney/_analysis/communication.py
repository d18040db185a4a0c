"""`jitney.analysis.communication`: collectives of a sharded program, and the named axes that
cause them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from .._errors import OptionError
from .._interface.derivatives.derivative import Derivative, program_of_call
from .._jax.mesh import mesh_text
from .._jax.xla.hlo import HloCollective, collectives
from .._owners import public
from .._program.runners.padded_calls import PaddedCalls
from .._program.tolerance.decide import with_policy
from .._report.comparisons import Collective, Communication
from .._signature.options import FSDP, Sharding
from .._stages.sharding import Place, no_mesh
from .._view.true_sizes import split_counts
from .._view.view import Leaf, View

if TYPE_CHECKING:
    from .._interface.program import Program


@public
def communication(
    f: Program[..., object] | Derivative[..., object],
    /,
    *args: object,
    **kwargs: object,
) -> Communication:
    """Count the collectives of a sharded program, by kind and line. The program is compiled for
    that, and the collectives are those of XLA's output.

    Args:
        f: A program with `shard`, or a derivative of one.
        args: As for a call; `jax.ShapeDtypeStruct`s will do.
        kwargs: As for a call.

    Raises:
        OptionError: The function has no `shard`.
        MeshError: There is no mesh, or an axis cannot be divided over it.
    """
    program = program_of_call("jitney.analysis.communication()", f, kwargs)
    entry, arrays = program.abstract(args, kwargs, None)
    if program.options.shard is None:
        raise OptionError(
            entry.core.where,
            "it is not sharded.",
            "Devices talk where `shard` lays axes along a mesh.",
            'decorate it with @jitney.optimize(shard={"batch": "data"}).',
            code="J208",
        )
    runs = PaddedCalls(entry).ahead(arrays) if program.options.pad else arrays
    with entry.numbers():
        planned = entry.plan_call(*split_counts(runs))
    place = planned.plan.of(Place)
    # A program whose mesh is optional has no `Place` without one.
    if place is None:
        raise no_mesh(entry.core.where)

    text = with_policy(entry, arrays, lambda: entry.lower(runs)).compile().as_text()
    operations = collectives(text, dict(place.mesh.shape))
    return Communication(
        str(entry.core.where),
        mesh_text(place.mesh),
        _group_collectives(
            operations, place, planned.view, program.options.shard.over(place.mesh.axis_names)
        ),
    )


def _group_collectives(
    operations: Sequence[HloCollective],
    place: Place,
    view: View,
    rules: Sharding,
) -> tuple[Collective, ...]:
    groups: dict[_Group, list[HloCollective]] = {}
    for operation in operations:
        whole = _replicated_argument(operation, place, view)
        # FSDP gathers parameters on purpose: not flagged.
        is_parameter = whole is not None and whole.in_module and rules.fsdp
        if is_parameter:
            axes = (FSDP,)
        else:
            axes = tuple(name for name, on in rules.axes if set(on) & set(operation.along))
        group = _Group(
            operation.kind,
            operation.along,
            axes,
            operation.line,
            operation.in_loop,
            whole.path if whole is not None and not is_parameter else None,
        )
        groups.setdefault(group, []).append(operation)

    # The largest first.
    out: list[Collective] = []
    for group, same in sorted(groups.items(), key=lambda item: -_bytes(item[1])):
        out.append(
            Collective(
                group.kind,
                len(same),
                _bytes(same),
                group.along,
                group.axes,
                group.line,
                group.in_loop,
                group.flag,
            )
        )
    return tuple(out)


class _Group(NamedTuple):
    """The fields that are equal among collectives of one row."""

    kind: str
    along: tuple[str, ...]
    axes: tuple[str, ...]
    line: str
    in_loop: bool
    flag: str | None


def _bytes(operations: Sequence[HloCollective]) -> int:
    return sum(operation.bytes for operation in operations)


def _replicated_argument(
    operation: HloCollective,
    place: Place,
    view: View,
) -> Leaf | None:
    """The argument that an all-gather replicates on every device; None if there is none."""
    # Matched by shape, in any order of the axes, and by the mesh axes that it is sharded over.
    if operation.kind != "all-gather":
        return None
    for leaf, spec in zip(view.leaves, place.specs, strict=True):
        spread = set(chain.from_iterable(spec))
        if not spread or not spread <= set(operation.along):
            continue
        if sorted(leaf.shape) == sorted(operation.shape):
            return leaf
    return None
