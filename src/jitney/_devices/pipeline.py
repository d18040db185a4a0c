"""`jitney.pipeline`: identical layers over the devices of a mesh axis, with microbatches in flight.

The schedule is that of GPipe (Huang et al. 2019, arXiv:1811.06965): all microbatches forward, then
all backward. Each device holds a part of the layers, works on one microbatch at a time, and sends
the result to the next device. With 3 stages and 4 microbatches, forward (a column is a tick):

    stage 0   0  1  2  3  .  .
    stage 1   .  0  1  2  3  .
    stage 2   .  .  0  1  2  3

It is written with JAX's own `shard_map` and `ppermute` in one `scan` over the ticks, so the
backward schedule is JAX's transpose of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import MeshError, OptionError, plural
from .._jax.mesh import (
    Mesh,
    automatic,
    automatically,
    context,
    current,
    explicit_mesh,
    mesh_text,
    spec,
    with_explicit_sharding,
)
from .._jax.trees import tree_map
from .._jax.typed import DType
from .._owners import public
from .._public import public_in
from .._text.shown import Shown

if TYPE_CHECKING:
    from rich.table import Table

T = TypeVar("T")
_P = jax.sharding.PartitionSpec
_WHERE = "jitney.pipeline()"


@public_in("jitney.types")
@dataclass(frozen=True, repr=False)
class Schedule(Shown):
    """Schedule of microbatches on devices; printed as a table.

    Args:
        stages: Number of devices along the axis of the pipeline.
        microbatches: Number of parts of the batch.
    """

    stages: int
    microbatches: int

    @property
    def ticks(self) -> int:
        """Number of iterations of the loop."""
        return self.microbatches + self.stages - 1

    def at(self, stage: int, tick: int) -> int | None:
        """The microbatch that a stage works on; None while it waits."""
        microbatch = tick - stage
        return microbatch if 0 <= microbatch < self.microbatches else None

    @property
    def bubble(self) -> float:
        """Fraction of its time that a device waits, counted from the schedule. In theory
        (S-1)/(M+S-1).
        """
        # Counted, and printed next to the formula.
        waits = sum(
            self.at(stage, tick) is None
            for stage in range(self.stages)
            for tick in range(self.ticks)
        )
        return waits / (self.stages * self.ticks)

    def __rich__(self) -> Table:
        from .._text.console import table

        def cell(microbatch: int | None) -> str:
            return " ." if microbatch is None else f"{microbatch % 100:2d}"

        rows = [
            [
                (f"stage {stage}", ""),
                (" ".join(cell(self.at(stage, tick)) for tick in range(self.ticks)), ""),
            ]
            for stage in range(self.stages)
        ]
        theory = (self.stages - 1) / (self.microbatches + self.stages - 1)
        rows.append(
            [
                ("bubble", "cyan"),
                (f"{self.bubble:.1%} of the time a device waits; (S-1)/(M+S-1) = {theory:.1%}", ""),
            ]
        )
        return table(
            f"{self.microbatches} microbatches through {plural(self.stages, 'stage')}, forward",
            rows,
        )


@public_in("jitney.types")
class Pipeline(eqx.Module):
    """Stack of layers over the devices of a mesh; returned by `jitney.pipeline`. Its arrays have
    the layer as their first axis.
    """

    layers: Any
    axis: str = eqx.field(static=True)
    microbatches: int = eqx.field(static=True)
    batch: str | None = eqx.field(static=True)
    mesh: object = eqx.field(static=True)
    remat: bool = eqx.field(static=True)

    @property
    def depth(self) -> int:
        """Number of layers."""
        return _arrays(self.layers)[0].shape[0]

    @public
    def schedule(self) -> Schedule:
        """The schedule on the given mesh, or on that of the context."""
        return Schedule(self._sizes()[self.axis], self.microbatches)

    @public
    def __call__(self, x: Any) -> Any:
        """Apply all layers to each element of a batch.

        Args:
            x: An array with the batch as its first axis; its size divides by the microbatches,
                times the devices along `batch`.

        Raises:
            MeshError: There is no mesh with these axes, or a size does not divide.
            OptionError: A layer changes the shape or the dtype of its input.
        """
        x = _batch(x)
        sizes = self._sizes()
        stages = sizes[self.axis]
        copies = sizes[self.batch] if self.batch else 1
        _check_divides(
            f"the {self.depth} layers",
            self.depth,
            stages,
            f"stages along {self.axis!r}",
        )
        size = x.shape[0]
        parts = f"{self.microbatches} microbatches"
        if copies > 1:
            parts += f" times {copies} devices along {self.batch!r}"
        _check_divides(f"a batch of {size}", size, self.microbatches * copies, parts)
        if explicit_mesh([*_arrays(self.layers), x]) is None:
            return self.through(x)
        return _ON_EXPLICIT(self, x)

    def through(self, x: jax.Array) -> jax.Array:
        """Apply all layers to each element, on a mesh whose axes are automatic."""
        sizes = self._sizes()
        stages = sizes[self.axis]
        copies = sizes[self.batch] if self.batch else 1
        arrays, rest = eqx.partition(self.layers, eqx.is_array)
        _check_layer(arrays, rest, x)

        def layer(x: jax.Array, own: Any) -> tuple[jax.Array, None]:
            return jax.vmap(eqx.combine(own, rest))(x), None

        # Residuals of a rematerialised layer are its input and parameters.
        step = jax.checkpoint(layer) if self.remat else layer

        def stage(own: object, x: jax.Array) -> jax.Array:
            return jax.lax.scan(step, x, own)[0]

        if stages == 1 and copies == 1:
            return stage(arrays, x)

        schedule = Schedule(stages, self.microbatches)
        mesh = {} if self.mesh is None else {"mesh": automatic(current(self.mesh))}

        def here(own: object, parts: jax.Array) -> jax.Array:
            return _through(own, parts, stage, self.axis, schedule)

        # Every device returns an array of results, and only that of the last stage is filled in:
        # the results are stacked along the axis of the pipeline and the last one is taken.
        run = jax.shard_map(
            here,
            **mesh,
            in_specs=(_P(self.axis), _P(None, self.batch)),
            out_specs=_P(self.axis, None, self.batch),
            check_vma=False,
        )
        # Microbatches first, so that the loop indexes them; `batch` shards the elements of each.
        split = x.reshape(self.microbatches, -1, *x.shape[1:])
        return run(arrays, split)[-1].reshape(x.shape)

    def _sizes(self) -> dict[str, int]:
        mesh = current(self.mesh, nested=True)
        if mesh is None:
            raise MeshError(
                _WHERE,
                "there is no mesh.",
                "Layers are sharded over an axis of a mesh of devices.",
                f"call it inside `with jitney.mesh({self.axis}=-1):`, or give"
                f" mesh=jitney.mesh({self.axis}=-1).",
                code="J250",
            )

        # `shard_map` uses the mesh of the context, so another mesh of its own cannot be given
        # inside.
        around = context()
        if not around.empty and dict(around.shape) != dict(mesh.shape):
            raise MeshError(
                _WHERE,
                f"its mesh is {mesh_text(mesh)}, and it is called inside another:"
                f" {mesh_text(around)}.",
                "Its devices hand on to each other by `shard_map`, which takes the mesh that it"
                " stands in.",
                "leave mesh= out, or call it outside of the other mesh.",
                code="J254",
            )
        for axis in filter(None, (self.axis, self.batch)):
            if axis not in mesh.shape:
                raise MeshError(
                    _WHERE,
                    f"the mesh has no axis {axis!r}.",
                    f"Its axes are {mesh_text(mesh)}.",
                    "correct the name, or make a mesh that has it.",
                    code="J251",
                )
        return dict(mesh.shape)


def _on_explicit(piped: Pipeline, x: jax.Array) -> jax.Array:
    """Call on a mesh with explicit axes: they are automatic inside, and the result is sharded as
    the batch is.
    """
    arrays, rest = eqx.partition((piped, x), eqx.is_array)
    mesh, along = explicit_mesh(_arrays(arrays)), spec(x)
    # `jax.sharding.auto_axes` does the same, but requires the sharding of results beforehand.
    with automatically(mesh) as brought:
        here, batch = eqx.combine(tree_map(brought, arrays), rest)
        out = here.through(batch)
    return with_explicit_sharding(out, mesh, along)


_ON_EXPLICIT: Callable[[Pipeline, jax.Array], jax.Array] = eqx.filter_jit(_on_explicit)


def _through(
    own: T,
    parts: jax.Array,
    stage: Callable[[T, jax.Array], jax.Array],
    axis: str,
    schedule: Schedule,
) -> jax.Array:
    """Loop of one device: its layers on each microbatch, as they arrive from the device before."""
    here = jax.lax.axis_index(axis)
    last = schedule.stages - 1
    # The last stage sends to nobody; `ppermute` gives zeros to the first.
    onwards = [(i, i + 1) for i in range(last)]

    def work(x: jax.Array) -> jax.Array:
        return stage(own, x)

    def tick(
        carry: tuple[jax.Array, jax.Array], t: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        came, done = carry

        # Stage `here` is `here` ticks behind the first; the clip is for ticks on which it waits.
        number = t - here
        working = (number >= 0) & (number < schedule.microbatches)
        place = jnp.clip(number, 0, schedule.microbatches - 1)
        x = jnp.where(here == 0, parts[place], came)
        # A branch, so that a device that waits computes nothing, and nothing of what it would
        # compute reaches a gradient.
        y = jax.lax.cond(working, work, _identity, x)
        updated = jax.lax.dynamic_update_index_in_dim(done, y, place, 0)
        done = jnp.where(working & (here == last), updated, done)
        return (jax.lax.ppermute(y, axis, onwards), done), None

    # Microbatch in flight, and results.
    begin = (jnp.zeros_like(parts[0]), jnp.zeros_like(parts))
    (_, done), _ = jax.lax.scan(tick, begin, jnp.arange(schedule.ticks))
    return done[None]


def _identity(x: T) -> T:
    return x


@public
def pipeline(
    layers: object,
    /,
    *,
    axis: str = "stage",
    microbatches: int,
    batch: str | None = None,
    mesh: object = None,
    remat: bool = False,
) -> Pipeline:
    """Spread a stack of identical layers over the devices along an axis of a mesh.

        blocks = jitney.pipeline([Block(key) for key in keys], axis="stage", microbatches=8)
        with jitney.mesh(stage=4, data=2):
            y = blocks(x)  # as `for block in ...: x = vmap(block)(x)`, and so are its gradients
        print(blocks.schedule())

    Each device holds an equal part of the layers. The batch goes through in microbatches; the more
    there are, the less devices wait for each other: (S-1)/(M+S-1) of the time with S stages and M
    microbatches.

    Args:
        layers: Equinox modules of one structure, each from one element to one of the same shape and
            dtype; or one module whose arrays have the layer as their first axis
            (`eqx.filter_vmap(Block)(keys)`).
        axis: Axis of the mesh over which the layers are sharded.
        microbatches: Number of parts that the batch is cut into.
        batch: Axis of the mesh over which each microbatch is sharded, if any.
        mesh: The devices; those of the context if it is left out.
        remat: Whether to keep only the input of each layer, and compute the rest again in the
            backward pass.

    Returns:
        A module; call it with a batch. Its arrays are the layers' parameters, stacked.

    Raises:
        OptionError: There is no layer, or they differ.
    """
    if not isinstance(microbatches, int) or isinstance(microbatches, bool) or microbatches < 1:
        raise OptionError(
            _WHERE,
            f"microbatches={microbatches!r} is not a number of parts.",
            "The batch goes through in equal parts.",
            "write microbatches=8.",
            code="J220",
        )
    chosen = mesh.mesh if isinstance(mesh, Mesh) else mesh
    stacked = (
        _stack_layers([_of_jax(layer) for layer in layers])
        if isinstance(layers, (list, tuple))
        else _of_jax(layers)
    )
    _check_stack(stacked)
    return Pipeline(stacked, axis, microbatches, batch, chosen, remat)


def _of_jax(layer: object) -> object:
    """The layer with NumPy arrays converted to JAX arrays.

    Raises:
        OptionError: It cannot be called.
    """
    if not callable(layer):
        raise OptionError(
            _WHERE,
            f"a layer is of type {type(layer).__name__}, which cannot be called.",
            "A layer is a module that is called with one element and returns one.",
            "put several steps into one module, such as eqx.nn.Sequential([...]), and arrays into"
            " one with a `__call__`.",
            code="J209",
        )
    return tree_map(_jaxs, layer)


def _jaxs(leaf: object) -> object:
    return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _check_stack(stacked: object) -> None:
    arrays = _arrays(stacked)
    counts = sorted({leaf.shape[:1] for leaf in arrays})
    if len(counts) == 1 and counts[0]:
        return
    found = (
        "layers hold no arrays"
        if not arrays
        else f"the first axes of its arrays are {', '.join(map(str, counts))}"
    )
    raise OptionError(
        _WHERE,
        f"{found}, where each layer has its part.",
        "Each device holds the parameters of its layers: arrays with the layer as their first"
        " axis.",
        "call a function without parameters before or behind the pipeline; stack layers with"
        " eqx.filter_vmap(Block)(keys).",
        code="J209",
    )


def _arrays(tree: object) -> list[jax.Array]:
    return jax.tree.leaves(eqx.filter(tree, eqx.is_array))


def _batch(x: object) -> jax.Array:
    """The batch as a JAX array.

    Raises:
        MeshError: It is not an array with a first axis.
    """
    if isinstance(x, np.ndarray) or (isinstance(x, jax.Array) and x.ndim):
        x = jnp.asarray(x)
    if not isinstance(x, jax.Array) or not x.ndim:
        what = f"{x.dtype}[]" if isinstance(x, jax.Array) else f"a {type(x).__name__}"
        raise MeshError(
            _WHERE,
            f"it is called with {what}.",
            "It takes one array with the batch as its first axis.",
            "stack the elements: jnp.stack([...]); put several arrays side by side into one.",
            code="J253",
        )
    return x


def _stack_layers(layers: Sequence[object]) -> object:
    parts = [eqx.partition(layer, eqx.is_array) for layer in layers]
    if not parts:
        raise OptionError(
            _WHERE,
            "there is no layer.",
            "It spreads a stack of layers.",
            "pass at least one.",
            code="J209",
        )
    # Layers may differ in the numbers of their arrays only.
    kinds = [tree_map(_kind, arrays) for arrays, _ in parts]
    for number, (kind, (_, rest)) in enumerate(zip(kinds, parts, strict=True)):
        if kind != kinds[0] or eqx.tree_equal(rest, parts[0][1]) is not True:
            raise OptionError(
                _WHERE,
                f"layer {number} ({type(layers[number]).__name__}) differs from layer 0 in more"
                " than its numbers.",
                "All devices run one program, so layers have one structure, one set of shapes, and"
                " equal static values.",
                "put what differs before or behind the pipeline; share functions such as"
                " activations between layers.",
                code="J209",
            )
    return eqx.combine(tree_map(_stack, *(arrays for arrays, _ in parts)), parts[0][1])


def _kind(leaf: jax.Array) -> tuple[tuple[int, ...], DType]:
    return leaf.shape, leaf.dtype


def _stack(*leaves: jax.Array) -> jax.Array:
    return jnp.stack(leaves)


def _layer_aval(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    """Abstract value of a single layer's part of a stacked array."""
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _check_divides(what: str, size: int, parts: int, of: str) -> None:
    if size % parts:
        raise MeshError(
            _WHERE,
            f"{what} cannot be cut into {of}.",
            "Each part has the same size.",
            f"make it a multiple of {parts}.",
        )


def _check_layer(arrays: object, rest: object, x: jax.Array) -> None:
    """Check that a layer returns the shape and dtype of its input.

    Raises:
        OptionError: It does not.
    """
    given = _layer_aval(x)

    def layer(own: Any, x: jax.Array) -> object:
        return eqx.combine(own, rest)(x)

    got = jax.eval_shape(layer, tree_map(_layer_aval, arrays), given)
    if getattr(got, "shape", None) != given.shape or got.dtype != given.dtype:
        raise OptionError(
            _WHERE,
            f"a layer makes {got} of {given}.",
            "What leaves one device enters the next, so shape and dtype stay.",
            "put layers that change them before or behind the pipeline.",
            code="J209",
        )
