"""Causes of a retrace or recompile: the differences between two calls, in terms of the signature.

Both calls are `TraceRecord`s. `causes` compares their tree structure, arrays, static values and
surroundings; only if these are equal does it look at numbers computed from sizes, decisions of the
plan and outer transforms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._jax.settings import settings_of_programs
from ..._values.identity import kind_of
from ..._values.strict_keys import are_one
from ..._view.layout import static_text
from ..._view.view import Leaf
from . import remedies
from .cause import Cause
from .closures import (
    cells,
    changed_cells,
    has_same_code,
    is_same,
    place_of_code,
)
from .remedies import AuthorContext
from .trace_record import TraceRecord, type_text


def causes(
    old: TraceRecord,
    new: TraceRecord,
    asked: AuthorContext,
) -> tuple[Cause, ...]:
    """Differences between two calls that require a new program."""
    found = [
        *_of_structure(old, new),
        *_of_arrays(old, new, asked),
        *_of_statics(old, new, asked),
        *_of_surroundings(old, new),
    ]
    # A program that places or pads its arrays is the same wherever they come from: their placement
    # is a cause only if nothing else is.
    places = [*_of_places(old, new)]
    if not (new.placed or new.padded) or not found:
        found += places
    # The calls are equal as the caller sees them: look at jitney's own decisions, one kind at a
    # time.
    if not found and old.numbers != new.numbers:
        found.append(
            Cause(
                "decision",
                None,
                None,
                "no numbers made of the size",
                "numbers made of the size, which the host works out",
            )
        )
    # If Python computes values from a size, each true size is traced.
    if not found and old.sizes != new.sizes and new.numbers:
        before = dict(old.sizes)
        found += [
            Cause("shape", None, axis, str(before.get(axis)), str(size))
            for axis, size in new.sizes
            if before.get(axis, size) != size
        ]
    if not found and old.plan is not None and new.plan is not None:
        stages = zip(old.plan.stages, new.plan.stages, strict=True)
        changed = [(a, b) for a, b in stages if a != b]
        found += [Cause("decision", b.name, None, a.why, b.why) for a, b in changed]
    if not found and old.outer != new.outer:
        words = old.outer or "called by itself", new.outer or "called by itself"
        found.append(Cause("outer transform", None, None, *words, remedy=remedies.OUTER))
    return tuple(found)


def _of_structure(old: TraceRecord, new: TraceRecord) -> Iterator[Cause]:
    """Yield differences of tree structure, and of the static fields of modules."""
    trees = dict(old.tree)
    if all(are_one(trees.get(argument, tree), tree) for argument, tree in new.tree):
        return

    # A static field of a module is a part of the treedef: report it as a value, not as a structure.
    fields = dict(old.fields)
    of_fields: set[str] = set()
    for path, value in new.fields:
        if path not in fields or is_same(fields[path], value):
            continue
        of_fields.add(_argument(path))
        remedy = f"make {path!r} an array, or keep its value: a static field is part of the program"
        texts = _texts(fields[path], value)
        yield Cause("static value", path, None, *texts, remedy=remedy)

    before, after = _leaves(old), _leaves(new)
    for argument, tree in new.tree:
        if argument not in trees or are_one(trees[argument], tree):
            continue
        found = [*_of_leaves(before, after, argument)]
        yield from found
        if not found and argument not in of_fields:
            words = _tree_text(trees[argument]), _tree_text(tree)
            remedy = remedies.for_structure([], [], argument)
            yield Cause("tree structure", argument, None, *words, remedy=remedy)


def _of_leaves(
    before: Mapping[str, str],
    after: Mapping[str, str],
    argument: str,
) -> Iterator[Cause]:
    """Yield the leaves of an argument that have come, gone, or become None or something else.

    Args:
        before: Text of the leaf at each path, in the earlier call.
        after: Likewise, in the new call.
        argument: Name of the argument.
    """
    mine = dict.fromkeys(path for path in (*before, *after) if _argument(path) == argument)
    switched: list[str] = []
    for path in mine:
        words = before.get(path), after.get(path)
        if None not in words and "None" in words and words[0] != words[1]:
            switched.append(path)

    # A subtree that was None as a whole is reported once, not for each of its leaves.
    own = [path for path in mine if not _stands_for(path, switched)]
    come = [path for path in own if path not in before]
    gone = [path for path in own if path not in after]
    remedy = remedies.for_structure(sorted(come or switched), sorted(gone), argument)
    for path in sorted((*come, *gone, *switched)):
        words = before.get(path, "absent"), after.get(path, "absent")
        yield Cause("tree structure", path, None, *words, remedy=remedy)


def _stands_for(path: str, switched: Sequence[str]) -> bool:
    """Return whether a leaf is inside a subtree that was None as a whole."""
    return any(path != whole and path.startswith((f"{whole}.", f"{whole}[")) for whole in switched)


def _leaves(record: TraceRecord) -> dict[str, str]:
    """Text of the leaf at each path."""
    return {
        **{leaf.path: type_text(leaf) for leaf in record.view.leaves if leaf.counts is None},
        **{path: static_text(value) for path, value in record.static},
        **dict.fromkeys(record.absent, "None"),
    }


def _argument(path: str) -> str:
    ends = [at for at in (path.find("."), path.find("[")) if at >= 0]
    return path[: min(ends)] if ends else path


def _tree_text(tree: object) -> str:
    text = str(tree).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 60 else f"{text[:57]}..."


def _of_arrays(
    old: TraceRecord,
    new: TraceRecord,
    asked: AuthorContext,
) -> Iterator[Cause]:
    before = {leaf.path: leaf for leaf in old.view.leaves if leaf.counts is None}
    # With another `jax_enable_x64` the same array has another dtype: that setting is the cause.
    wider = dict(old.surroundings).get("setting jax_enable_x64") != dict(new.surroundings).get(
        "setting jax_enable_x64"
    )
    for leaf in new.view.leaves:
        was = before.get(leaf.path)
        if was is None or leaf.counts is not None:
            continue
        if was.shape != leaf.shape and not (
            (new.padded or old.padded) and (new.plan is None or old.plan is None)
        ):
            yield from _of_shape(old, new, was, leaf, asked)
        of_x64 = (
            wider
            and leaf.path in old.given
            and leaf.path in new.given
            and old.given[leaf.path].dtype == new.given[leaf.path].dtype
        )
        if was.dtype != leaf.dtype and not of_x64:
            yield Cause(
                "dtype",
                leaf.path,
                None,
                str(was.dtype),
                str(leaf.dtype),
                remedy=remedies.for_dtype(leaf, was.dtype, leaf.dtype),
            )
        if was.weak_type != leaf.weak_type:
            words = {False: "strong", True: "weak"}
            remedy = remedies.for_weak_type(leaf)
            yield Cause(
                "weak type",
                leaf.path,
                None,
                words[was.weak_type],
                words[leaf.weak_type],
                remedy=remedy,
            )


def _of_shape(
    old: TraceRecord,
    new: TraceRecord,
    was: Leaf,
    leaf: Leaf,
    asked: AuthorContext,
) -> Iterator[Cause]:
    names, names_before = new.axes.get(leaf.path, ()), old.axes.get(leaf.path, ())
    dims = zip(was.shape, leaf.shape, strict=False)
    changed = [i for i, (before, now) in enumerate(dims) if before != now]
    named = (
        len(was.shape) == len(leaf.shape) == len(names)
        and names == names_before
        and all(names[i] is not None for i in changed)
    )
    if not named:
        remedy = remedies.for_shape(leaf, was.shape, leaf.shape)
        yield Cause(
            "shape",
            leaf.path,
            None,
            _size(was.shape),
            _size(leaf.shape),
            remedy=remedy,
        )
        return
    for i in changed:
        axis = str(names[i])
        remedy = remedies.for_size(
            asked,
            leaf,
            axis,
            was.shape[i],
            leaf.shape[i],
        )
        yield Cause(
            "shape",
            leaf.path,
            axis,
            str(was.shape[i]),
            str(leaf.shape[i]),
            remedy=remedy,
        )


def _size(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _of_statics(
    old: TraceRecord,
    new: TraceRecord,
    asked: AuthorContext,
) -> Iterator[Cause]:
    # The same static objects with other content: plain objects are compared by what they hold.
    if old.keys == new.keys and old.generation != new.generation:
        for path, was, now in new.changed:
            yield Cause("static value", path, None, was, now, remedy=remedies.for_attribute(path))
    before, arrays = dict(old.static), {leaf.path: leaf for leaf in old.view.leaves}
    for path, value in new.static:
        # An array before, static now; the loop below is for the converse.
        if path in arrays:
            texts = f"{type_text(arrays[path])} (array)", f"{static_text(value)} (static)"
            yield Cause(
                "static value",
                path,
                None,
                *texts,
                remedy=remedies.for_number_or_array(path, _argument(path)),
            )
        elif path in before and not is_same(before[path], value):
            if has_same_code(before[path], value):
                yield _of_function(path, before[path], value)
            else:
                remedy = remedies.for_static(asked, path, _argument(path), before[path], value)
                yield Cause(
                    "static value",
                    path,
                    None,
                    *_texts(before[path], value),
                    remedy=remedy,
                )
    for leaf in new.view.leaves:
        if leaf.path in before and leaf.counts is None:
            texts = f"{static_text(before[leaf.path])} (static)", f"{type_text(leaf)} (array)"
            yield Cause(
                "static value",
                leaf.path,
                None,
                *texts,
                remedy=remedies.for_number_or_array(leaf.path, leaf.argument),
            )


def _of_surroundings(old: TraceRecord, new: TraceRecord) -> Iterator[Cause]:
    before = dict(old.surroundings)
    for what, value in new.surroundings:
        if before.get(what, value) == value:
            continue
        if what == "mesh":
            yield Cause("mesh", None, None, before[what], value, remedy=remedies.MESH)
        elif what == "called":
            yield Cause("outer transform", None, None, before[what], value, remedy=remedies.OUTER)
        else:
            name = what.removeprefix("setting ")
            yield Cause(
                "setting",
                name,
                None,
                before[what],
                value,
                remedy=remedies.for_setting(name, dict(settings_of_programs()).get(name)),
            )


def _of_places(old: TraceRecord, new: TraceRecord) -> Iterator[Cause]:
    ranks = {leaf.path: len(leaf.shape) for leaf in new.view.leaves}
    for path, given in new.given.items():
        was = old.given.get(path)
        if was is None or _is_same_placement(was.place, given.place, ranks.get(path, 0)):
            continue
        # One committed array and one that is not, on a single device; all else is another sharding.
        over = [place for place in (was.place, given.place) if place is not None]
        committed = len(over) == 1 and getattr(over[0], "spec", None) is None
        remedy = remedies.for_placement(path, committed=committed)
        yield Cause(
            "committed" if committed else "sharding",
            path,
            None,
            was.place_text(),
            given.place_text(),
            remedy=remedy,
        )


def _is_same_placement(old: Any, new: Any, rank: int) -> bool:
    if old is None or new is None:
        return old is new
    # Shardings that differ as objects may place an array in the same way.
    return old == new or (
        type(old) is type(new) and old.device_set == new.device_set and _equivalent(old, new, rank)
    )


def _equivalent(old: Any, new: Any, rank: int) -> bool:
    if getattr(old, "mesh", None) != getattr(new, "mesh", None):
        return False
    return old.is_equivalent_to(new, rank)


def _texts(old: object, new: object) -> tuple[str, str]:
    """Short texts of two different values that differ themselves."""
    a, b = static_text(old), static_text(new)
    if a != b:
        return a, b
    if place_of_code(old) != place_of_code(new):
        return f"{a}{place_of_code(old)}", f"{b}{place_of_code(new)}"
    x, y = kind_of(old).__name__, kind_of(new).__name__
    return (f"{a} ({x})", f"{b} ({y})") if x != y else (a, f"another {b}")


def _of_function(path: str, old: object, new: object) -> Cause:
    """Cause of a function argument that was created anew."""
    before, after = cells(old), cells(new)
    changed = changed_cells(before, after)
    was, now = dict(before), dict(after)
    texts = (
        ", ".join(f"{name}={was.get(name)}" for name in changed),
        ", ".join(f"{name}={now[name]}" for name in changed),
    )
    words = texts if changed else (f"{static_text(old)}{place_of_code(old)}", "created again")
    return Cause(
        "function", path, None, *words, remedy=remedies.for_function_argument(path, changed)
    )
