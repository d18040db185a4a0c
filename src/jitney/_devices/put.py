"""`jitney.place`: put a pytree where a sharded program would put it, before there is a call."""

from __future__ import annotations

from typing import Any

import jax

from .._errors import MeshError, Where
from .._jax.mesh import automatic, current
from .._jax.trees import keystr, tree_flatten_with_path, tree_unflatten
from .._owners import public
from .._processes.compare_processes import with_sharding
from .._signature.options import Options, fail, read_shard
from .._stages.sharding import check_names, sharding, spec_of
from .._stages.stage import Request
from .._view.field_axes import axes_in_fields, with_fields
from .._view.layout import aval_parts
from .._view.named_axes import named_axes
from .._view.view import Leaf, View, is_array

_WHERE = Where("jitney.place")


@public
def place(tree: object, /, *, shard: object, mesh: object = None) -> Any:
    """Shard the arrays of modules over a mesh as a program with this `shard` does.

        with jitney.mesh(data=-1):
            shapes = eqx.filter_eval_shape(Model, key=key)
            like = jitney.place(shapes, shard="fsdp")  # no numbers yet
            step, model = checkpoints.restore(like)  # each device reads its part

    In a run of several processes, an array that is local to each process is taken to be the same in
    all of them.

    Args:
        tree: A module, or a tree of them such as the state of an optimiser; its arrays may be
            `jax.ShapeDtypeStruct`s.
        shard: As for `jitney.optimize`; axes that no array here has are left out.
        mesh: The devices; those of the context if it is left out.

    Returns:
        The tree with its arrays placed; a `jax.ShapeDtypeStruct` gets the sharding that the array
        shall have.

    Raises:
        MeshError: There is no mesh, it has no such axis, or a size does not divide.
        OptionError: `shard` is malformed.
    """
    rules, around = read_shard(_WHERE, shard), current(mesh)
    if rules is None:
        fail(
            _WHERE,
            "`shard` says nothing.",
            "It says which axis is sharded over which axis of the mesh.",
            'write shard="fsdp".',
        )
    if around is None:
        raise MeshError(
            _WHERE,
            "there is no mesh.",
            "Axes are sharded over the axes of a mesh of devices.",
            "call it inside `with jitney.mesh(data=-1):`, or give mesh=jitney.mesh(data=-1).",
            code="J250",
        )
    on = automatic(around)
    rules = rules.over(on.axis_names)
    paths, treedef = tree_flatten_with_path(tree)
    arrays = [
        (path, leaf, inside)
        for (path, leaf), inside in zip(paths, axes_in_fields(tree), strict=True)
        if is_array(leaf)
    ]
    view = View(
        tuple(Leaf(keystr(path) or "the tree", "", *aval_parts(leaf)) for path, leaf, _ in arrays)
    )
    view = with_fields(view, [inside for *_, inside in arrays])
    named = named_axes(view)
    # Treat all axes of the rules as known: some may belong to arguments of the program that are not
    # here.
    known = tuple(name for name, _ in rules.axes)
    check_names(Request(_WHERE, Options(shard=rules), axes=known), rules, on, named)
    shardings = [
        sharding(on, spec_of(_WHERE, leaf, axes, rules, on))
        for leaf, axes in zip(view.leaves, named, strict=True)
    ]
    leaves = zip(arrays, shardings, strict=True)
    placed = iter([_put_leaf(leaf, to) for (_, leaf, _), to in leaves])
    return tree_unflatten(treedef, [next(placed) if is_array(leaf) else leaf for _, leaf in paths])


def _put_leaf(leaf: object, to: jax.sharding.Sharding) -> jax.Array | jax.ShapeDtypeStruct:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(
            leaf.shape,
            leaf.dtype,
            sharding=to,
            weak_type=leaf.weak_type,
        )
    return with_sharding(leaf, to)
