"""Programs of blocks: the program of one row, mapped over so many rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from ..._axes import is_wide
from ..._body.function import FunctionInfo
from ..._errors import AxisError, OptionError
from ..._jax.equinox_checks import has_equinox_checks
from ..._jax.mesh import automatic, current
from ..._jax.programs.jaxprs import draws_jointly, equations, source_of
from ..._jax.programs.large_constants import ConstantsChanged, large_constants
from ..._jax.settings import x64_is_on
from ..._jax.trees import Tracer, tree_map
from ..._jax.typed import Jitted
from ..._jax.xla.compiler import options_of
from ..._jax.xla.memory import budget_of, text
from ..._signature.options import OPTIONAL, Options
from ..._stages.sharding import no_mesh
from ..._view.layout import aval_parts
from ..runners.captured_calls import Capture, capture_of
from . import lots
from .group import BlockProgram, RowGroup
from .groups import RowGroups

if TYPE_CHECKING:
    from .columns import Column


@dataclass(frozen=True)
class RowDevices:
    """Devices that share each block, a part of its rows each.

    Args:
        mesh: Their mesh.
        axes: Axes of the mesh that rows are sharded over.
    """

    mesh: jax.sharding.Mesh
    axes: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many parts a block has."""
        count = 1
        for axis in self.axes:
            count *= self.mesh.shape[axis]
        return count

    def rungs(self, rungs: Sequence[int]) -> tuple[int, ...]:
        """Numbers of rows that divide, in place of these."""
        multiples = {max(1, rung // self.count) * self.count for rung in rungs}
        return tuple(sorted(multiples, reverse=True))

    def shared(
        self,
        mapped: Callable[..., object],
        is_shared: Sequence[bool],
    ) -> Callable[..., object]:
        """Return the function of a block with its rows divided.

        Args:
            mapped: The function.
            is_shared: Whether all rows have the same, of each argument.
        """
        rows = PartitionSpec(self.axes)
        specs = tuple(PartitionSpec() if shared else rows for shared in is_shared)
        return jax.shard_map(
            mapped,
            mesh=self.mesh,
            in_specs=specs,
            out_specs=rows,
            check_vma=False,
        )


def refuse_options(core: FunctionInfo) -> None:
    """Check that the options of a function go with rows of unlike lengths.

    Raises:
        OptionError: One does not.
    """
    options = core.options
    (axis,) = options.vmap
    clashes = {
        "donate": bool(options.donate),
        "debug_nans": options.debug_nans,
        "progress": options.progress,
        'runtime_checks="later"': options.runtime_checks == "later",
        'on_trace_error="eager"': options.on_trace_error != "raise",
        'cache="program"': options.cache == "program",
        'precision="auto:..."': str(options.precision).startswith("auto"),
        "a position other than 0 in vmap": any(at not in (0, None) for _, at in axis.dims or ()),
    }
    found = [what for what, clashes_here in clashes.items() if clashes_here]
    if found:
        raise OptionError(
            core.where,
            f"rows of unlike lengths do not go with {' and '.join(found)}.",
            "A list of rows is one call for each bucket, and these act on one call.",
            "leave it out, or pass one array in which all rows have one length.",
            code="J201",
        )


def devices_of(core: FunctionInfo) -> RowDevices | None:
    """Return the devices that share the rows of a call; None if it has one.

    Raises:
        MeshError: There is no mesh.
        OptionError: `shard` has other axes than that of `vmap`, or several processes have a part.
    """
    shard = core.options.shard
    if shard is None:
        return None
    (axis,) = core.options.vmap
    mesh = current(core.options.mesh)
    if mesh is None and core.options.mesh == OPTIONAL:
        return None
    if mesh is None:
        raise no_mesh(core.where)
    along = dict(shard.over(mesh.axis_names).axes)
    if shard.fsdp or set(along) != {axis.name} or jax.process_count() > 1:
        processes = " in several processes" if jax.process_count() > 1 else ""
        raise OptionError(
            core.where,
            f"rows of unlike lengths are sharded over {axis.name!r} alone,"
            f" and not by shard={dict(shard.axes)!r}{processes}.",
            "Each device runs the programs of some rows, and has all arrays that they share.",
            f'write shard={{"{axis.name}": ...}}.',
            code="J201",
        )
    return RowDevices(automatic(mesh), along[axis.name])


def rungs_for(
    options: Options,
    devices: RowDevices | None,
    limit: int | None = None,
) -> tuple[int, ...]:
    """How many rows programs take at a time, in descending order.

    Args:
        options: The options of the function.
        devices: Devices that share each block.
        limit: How many rows keep to `memory`.
    """
    most = [size for _, size in options.chunk if isinstance(size, int)]
    most += [] if limit is None else [max(1, limit)]
    rungs = lots.RUNGS
    if most:
        rungs = (min(most), *(rung for rung in rungs if rung < min(most)))
    return rungs if devices is None else devices.rungs(rungs)


@dataclass(frozen=True)
class BlockPrograms:
    """Programs of the groups of one call.

    Args:
        core: The function, with `vmap`.
        groups: The groups.
        columns: Columns of the call.
        devices: Devices that share each block; None if there is one.
    """

    core: FunctionInfo
    groups: RowGroups
    columns: Sequence[Column]
    devices: RowDevices | None

    def rungs(self, group: RowGroup) -> tuple[int, ...]:
        """How many rows programs of a group take at a time."""
        return rungs_for(
            self.core.options,
            self.devices,
            group.limit,
        )

    def program(
        self,
        group: RowGroup,
        given: Sequence[object],
        rung: int,
    ) -> BlockProgram | None:
        """Return the program of so many rows, traced; None if its trace has found out more of the
        group, so that rows are to be put into groups once more.

        Args:
            group: Their group.
            given: Its arguments, or abstract values.
            rung: How many rows it takes.

        Raises:
            AxisError: One row alone takes more than `memory`.
        """
        # Options of the compiler belong to the outermost `jit`.
        entry = self.groups.entry
        options = dict(options_of(entry.options.compiler)) or None
        jitted = entry.jitted if options is None else self.groups.without_options
        is_shared = [column.kind == "shared" for column in self.columns]
        is_shared += [False] * (len(given) - self.core.options.accumulate - len(is_shared))
        was_known = self.groups.is_seen_at_each_size(group)
        alone = _alone(given, is_shared)
        traced = jitted.trace(*alone).jaxpr
        self._refuse_wide(traced)
        row = _calling(jitted, self.core.name)
        program, jaxpr = None, None
        if large_constants(traced) and not entry.request.nested:
            # A function that makes such an array in each trace has another one in each.
            with suppress(ConstantsChanged):
                capture = self._capture(jitted, alone)
                program = self._block(_taking_first(capture), is_shared, options, capture.copies)
                jaxpr = program.jitted.trace(*capture.copies, *given).jaxpr
                group.captured = capture.arrays
        if program is None or jaxpr is None:
            program = self._block(row, is_shared, options)
            jaxpr = program.jitted.trace(*given).jaxpr
        if self.groups.is_seen_at_each_size(group) and not was_known:
            # The trace has seen one size, and each other one is to be looked at.
            self.groups.forget_members(group)
            return None
        self._refuse_joint_draws(jaxpr)
        group.has_checks = has_equinox_checks(jaxpr)
        if jaxpr.effects and self.devices is not None:
            raise AxisError(
                self.core.where,
                "rows are shared by devices, and the function has effects.",
                "Devices run equal numbers of rows, so some rows run twice, and effects would"
                " happen twice.",
                "leave out `shard`.",
            )
        if jaxpr.effects and not group.has_effects:
            # Effects of a row happen once: no row is computed in vain.
            group.has_effects = True
            return None
        if self.core.options.memory is not None:
            limit = self._memory_limit(
                group,
                program,
                given,
                rung,
            )
            if limit is not None:
                group.limit = limit
                return None
        group.programs[rung] = program
        return program

    def _block(
        self,
        row: Callable[..., object],
        is_shared: Sequence[bool],
        options: dict[str, bool] | None,
        captured: tuple[jax.Array, ...] = (),
    ) -> BlockProgram:
        """Return the program of many rows, from the function of one."""
        is_shared = [*[True] * len(captured), *is_shared]
        mapped = jax.vmap(
            row,
            in_axes=tuple(None if shared else 0 for shared in is_shared),
        )
        if self.devices is not None:
            mapped = self.devices.shared(mapped, is_shared)
        if self.core.options.accumulate:
            mapped = _summed(mapped, self.core.name)
        compiled = cast("Jitted", jax.jit(mapped, compiler_options=options))
        return BlockProgram(compiled, captured)

    def _capture(
        self,
        jitted: Jitted,
        alone: Sequence[object],
    ) -> Capture:
        """Copy the large arrays that the program of a row has captured."""
        return capture_of(
            self.core,
            jitted,
            alone,
            self.groups.entry.captured_copies,
            None if self.devices is None else self.devices.mesh,
        )

    def _refuse_wide(self, traced: object) -> None:
        """Check that no row computes in 64 bits inside a program of 32.

        Raises:
            AxisError: One does.
        """
        if x64_is_on():
            return
        wide = [source_of(eqn) for eqn in equations(traced) if is_wide(eqn)]
        if wide:
            raise AxisError(
                self.core.where,
                f"{next(filter(None, wide), 'it')} computes in 64 bits, inside `jax.enable_x64`.",
                "JAX truncates some operations of 64 bits to 32 where it maps them and"
                " `jax_enable_x64` is off.",
                'decorate with precision="f64", or call it inside `with jax.enable_x64(True):`.',
            )

    def _refuse_joint_draws(self, jaxpr: object) -> None:
        """Check that no row draws from the key of another one.

        Raises:
            AxisError: One may.
        """
        for eqn in equations(jaxpr):
            if draws_jointly(eqn) and eqn.invars[0].aval.shape:
                raise AxisError(
                    self.core.where,
                    f"{source_of(eqn) or 'it'} draws for all rows at once"
                    f" (`{eqn.primitive.name}`).",
                    "JAX maps this generator by drawing the numbers of all rows from the key of the"
                    " first, and a row draws alone.",
                    'draw with keys of `jax.random.key(seed, impl="threefry2x32")`.',
                )

    def _memory_limit(
        self,
        group: RowGroup,
        program: BlockProgram,
        given: Sequence[object],
        rung: int,
    ) -> int | None:
        """Return how many rows keep to `memory`; None if these do.

        Raises:
            AxisError: One row alone takes more.
        """
        where, memory = self.core.where, self.core.options.memory
        budget = budget_of(where, memory)
        taken = program.bytes(*tree_map(_abstract, tuple(given)))
        if taken <= budget:
            return None
        if rung > self.rungs(group)[-1]:
            # Bytes are about proportional to the rows; what is over again is cut again.
            return min(rung - 1, rung * budget // taken)
        raise AxisError(
            where,
            f"a row of {self.core.options.vmap[0].name!r} takes {text(taken)}, more than its memory"
            f" of {text(budget)}.",
            "`memory` bounds temporaries and arguments of a block of rows, as the compiler counts"
            " them, and is kept by fewer rows at a time.",
            f"give it memory={taken}.",
            code="J230",
        )


def _abstract(
    array: object,
    drop: int = 0,
) -> object:
    """The shape and dtype of an array, without its first axes."""
    if not (drop or isinstance(array, Tracer)):
        return array
    shape, dtype, weak = aval_parts(array)
    return jax.ShapeDtypeStruct(
        shape[drop:],
        dtype,
        weak_type=weak,
    )


def _alone(given: Sequence[object], is_shared: Sequence[bool]) -> list[object]:
    """The arguments of one row, abstract."""
    alone: list[object] = []
    for array, shared in zip(given, is_shared, strict=False):
        drop = 0 if shared else 1
        alone.append(tree_map(lambda leaf, drop=drop: _abstract(leaf, drop), array))
    return alone


def _taking_first(capture: Capture) -> Callable[..., object]:
    """Return the function of a row that takes its captured arrays first."""
    count = len(capture.copies)

    def rows(*given: object) -> object:
        return capture.taking(*given[count:], *given[:count])

    rows.__name__ = rows.__qualname__ = capture.taking.__name__
    return rows


def _calling(
    jitted: Jitted,
    name: str,
) -> Callable[..., object]:
    def rows(*arrays: object) -> object:
        return jitted(*arrays)

    rows.__name__ = rows.__qualname__ = name
    return rows


def _summed(
    mapped: Callable[..., object],
    name: str,
) -> Callable[..., object]:
    """Return the function of a block that sums over its rows, of which the last argument says how
    many there are; behind them others are repeated.
    """

    def total(*given: jax.Array) -> object:
        *arrays, count = given

        def of(array: jax.Array) -> jax.Array:
            steps = jnp.arange(array.shape[0], dtype=np.int32)
            own = (steps < count).reshape(-1, *[1] * (array.ndim - 1))
            zero = jnp.zeros((), array.dtype)
            return jnp.sum(jnp.where(own, array, zero), axis=0, dtype=array.dtype)

        return tree_map(of, mapped(*arrays))

    total.__name__ = total.__qualname__ = name
    return total
