"""Readers of options: from what an author writes to what `Options` holds.

Each takes the place of the decoration, and the value; those that serve several options take the
name of the option too. They refuse a malformed value, and say how it is written.

    read_pad(where, {"n": "pow2"})  ->  (("n", Bucket(ladder="pow2")),)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import jax

from ..._errors import OptionError, Where
from ..._extent import AUTO, parsed_bytes
from ..._host.switches import is_auto
from ..._jax.mesh import Mesh
from ..._jax.trees import is_whole
from ..._precision import tokens
from ..buckets import Bucket
from ..paths import Steps, steps_of
from .values import (
    EVERY,
    FSDP,
    MAX_VMAP_AXES,
    MEASURED,
    MOST_WORKERS,
    OPTIONAL,
    PRECISIONS,
    PRODUCT_TYPES,
    CompileLimit,
    Sharding,
    VmapAxis,
    tolerance_of,
)


def fail(
    where: Where | str,
    what: str,
    rule: str,
    fix: str,
    *,
    code: str | None = None,
) -> NoReturn:
    raise OptionError(where, what, rule, fix, code=code)


def read_names(
    where: Where | str,
    option: str,
    value: object,
) -> tuple[str, ...]:
    if value is None:
        return ()
    names = None
    if isinstance(value, str):
        names = (value,)
    elif isinstance(value, (tuple, list)):
        names = tuple(value)
    if names is None or not all(isinstance(name, str) and name.isidentifier() for name in names):
        fail(
            where,
            f"{option}={value!r} does not name parameters.",
            f"`{option}` takes parameter names.",
            f'write {option}="x" or {option}=("x", "y").',
        )
    if len(set(names)) != len(names):
        fail(
            where,
            f"{option}={value!r} names a parameter twice.",
            "Each name stands once.",
            "drop the repetition.",
        )
    return names


def read_vmap(where: Where | str, value: object) -> tuple[VmapAxis, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        axes = (VmapAxis(value),)
    elif isinstance(value, Mapping) and value:
        axes = tuple(_explicit(where, value, name, dims) for name, dims in value.items())
    else:
        axes = ()
    if not axes or len(axes) > MAX_VMAP_AXES or not all(_is_axis(axis.name) for axis in axes):
        fail(
            where,
            f"vmap={value!r} does not name an axis.",
            "`vmap` takes one axis name, or a dict from axis name to {argument: position},"
            " outermost axis first.",
            'write vmap="batch" or vmap={"batch": {"x": 0}}.',
        )
    return axes


def _explicit(
    where: Where | str,
    value: object,
    name: Any,
    dims: object,
) -> VmapAxis:
    if (
        not isinstance(dims, Mapping)
        or not all(isinstance(path, str) for path in dims)
        or not all(map(_is_position, dims.values()))
        # Without a position nothing would be mapped.
        or all(dim is None for dim in dims.values())
    ):
        fail(
            where,
            f"vmap={value!r} does not say which argument has axis {name!r} where.",
            "The dict form takes {axis: {argument: position}}.",
            f'write vmap={{"{name}": {{"x": 0}}}}.',
        )

    parts: dict[Steps, str] = {}
    for path in dims:
        steps = steps_of(path)
        if steps is None:
            fail(
                where,
                f"vmap={value!r} has {path!r}, which is not a path.",
                "A part of an argument is written as the body reaches it.",
                'write "model.layers[0].weight", or "params[\'layers\']" for an item of a dict.',
            )
        if steps in parts:
            fail(
                where,
                f"vmap={value!r} has {parts[steps]!r} and {path!r}, which are one part.",
                "A part has one position of an axis.",
                "keep one of them.",
            )
        parts[steps] = path
    return VmapAxis(name, tuple(dims.items()))


def _is_position(dim: object) -> bool:
    # A bool is an int to Python, but not a position.
    return dim is None or (isinstance(dim, int) and not isinstance(dim, bool))


def read_pad(
    where: Where | str,
    value: object,
) -> tuple[tuple[str, Bucket], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping) or not value or not all(map(_is_axis, value)):
        fail(
            where,
            f"pad={value!r} does not say which axis is padded to what.",
            "`pad` takes a dict from axis name to buckets.",
            'write pad={"points": "pow2"}.',
        )
    items = value.items()
    return tuple((name, _bucket(where, name, buckets)) for name, buckets in items)


def _bucket(where: Where | str, name: str, buckets: Any) -> Bucket:
    if isinstance(buckets, Bucket):
        return buckets
    try:
        return Bucket(ladder=buckets) if isinstance(buckets, str) else Bucket(buckets)
    except OptionError as error:
        # Quote the first line of the error without its "jitney.Bucket(): ".
        what = str(error).partition("\n")[0].partition("(): ")[2].rstrip(".")
        fail(
            where,
            f"pad={{{name!r}: {buckets!r}}}: {what}.",
            'The buckets of an axis are "pow2", "aligned", "auto", a list of sizes, or a'
            " jitney.Bucket.",
            "choose one of these.",
        )


def read_chunk(
    where: Where | str,
    value: object,
) -> tuple[tuple[str, int | str], ...]:
    if value is None:
        return ()
    if (
        not isinstance(value, Mapping)
        or len(value) == 0
        or not all(map(_is_axis, value))
        or not all(map(_is_chunk_size, value.values()))
    ):
        fail(
            where,
            f"chunk={value!r} does not say which axis is cut into chunks of what size.",
            '`chunk` takes a dict from axis name to a size above 0, "auto" or "fast".',
            'write chunk={"points": 65536}.',
        )
    if len(value) > 1:
        fail(
            where,
            f"chunk={value!r} cuts several axes.",
            "One axis is cut at a time.",
            "keep the longest.",
        )
    return tuple(value.items())


def _is_chunk_size(value: object) -> bool:
    if isinstance(value, str):
        return value in (AUTO, MEASURED)
    # A bool is an int to Python, but not a size.
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_memory(where: Where | str, value: object) -> int | str | None:
    if value is None:
        return None
    size = parsed_bytes(value)
    if size is None:
        fail(
            where,
            f"memory={value!r} is not a size.",
            '`memory` takes a number of bytes, a text with a unit, or "auto".',
            'write memory="2GiB".',
        )
    return size


def read_max_compiles(where: Where | str, value: Any) -> CompileLimit | None:
    if value is None:
        return None
    if is_whole(value) and value > 0:
        return CompileLimit(int(value), _PAST[0])
    match = None
    if isinstance(value, str):
        match = re.fullmatch(rf"({'|'.join(_PAST)}):([1-9]\d*)", value)
    if match is None:
        fail(
            where,
            f"max_compiles={value!r} is not a limit.",
            "It is a number above 0, and what happens past it, which is a warning.",
            'write max_compiles=3, "raise:3" or "eager:3".',
        )
    return CompileLimit(int(match[2]), match[1])


_PAST = ("warn", "raise", "eager")


def _is_axis(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def read_workers(where: Where | str, value: object) -> int | str | None:
    if value is None:
        return None
    if isinstance(value, str) and value == AUTO:
        return AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MOST_WORKERS:
        fail(
            where,
            f"workers={value!r} is not a number of threads.",
            f'It is a number from 1 to {MOST_WORKERS}, or "auto" for as many as there are cores to'
            " be had.",
            'write workers=2 or workers="auto".',
        )
    return value


def read_auto(where: Where | str, value: object) -> bool | str | None:
    if value is None or (isinstance(value, (bool, str)) and is_auto(value)):
        return value
    fail(
        where,
        f"auto={value!r} is not a choice.",
        '`auto` is True, False, or "exact" for widths whose results are equal to the bit.',
        "write auto=True.",
    )


def read_roll(where: Where | str, value: object) -> str | None:
    if value is None or value is False:
        return None
    if not isinstance(value, str) or value != AUTO:
        fail(
            where,
            f"roll={value!r} does not say what is rolled.",
            '`roll` is "auto": equal layers become a loop where that is proven to be the same and'
            " worth it.",
            'write roll="auto".',
        )
    return AUTO


def read_precision(
    where: Where | str,
    value: object,
) -> str | tuple[tuple[str, str], ...] | None:
    if value is None or (isinstance(value, str) and value in PRECISIONS):
        return value
    if isinstance(value, Mapping) and value:
        for name, type_ in value.items():
            if not isinstance(name, str) or not tokens(name) or type_ not in PRODUCT_TYPES:
                fail(
                    where,
                    f"precision={{{name!r}: {type_!r}}} does not say which products are computed in"
                    " what.",
                    'The dict form takes module paths (or source lines, "net.py:12"), and of each'
                    f" {', '.join(PRODUCT_TYPES)}.",
                    'write precision={"default": "bf16", "head": "f32"}.',
                )
        return tuple(value.items())
    if isinstance(value, str) and tolerance_of(value) is not None:
        return value
    fail(
        where,
        f"precision={value!r} is not a policy.",
        f"`precision` is one of {', '.join(PRECISIONS)}, "
        f'"auto:" with a tolerance such as 1e-2, or a dict of {", ".join(PRODUCT_TYPES)} by module'
        " path.",
        "choose one.",
    )


def read_cache(where: Where | str, value: object) -> bool | Literal["program"]:
    if isinstance(value, str) and value == "program":
        return "program"
    if not isinstance(value, bool):
        fail(
            where,
            f"cache={value!r} is not a choice.",
            '`cache` is True, False or "program".',
            "write cache=True.",
        )
    return value


def read_shard(where: Where | str, value: object) -> Sharding | None:
    """Parse the option `shard`.

    Raises:
        OptionError: It is malformed.
    """
    if value is None:
        return None

    # Three forms: "fsdp", a dict of axes, and ("fsdp", dict).
    named = value
    fsdp = False
    if isinstance(value, str) and value == FSDP:
        named, fsdp = dict[str, str](), True
    elif isinstance(value, (tuple, list)) and len(value) == 2:
        fsdp = isinstance(value[0], str) and value[0] == FSDP
        named = value[1] if fsdp else value
    if not isinstance(named, Mapping) or not (named or fsdp) or not all(map(_is_axis, named)):
        _not_sharding(where, value)
    axes: list[tuple[str, tuple[str, ...]]] = []

    for name, along in named.items():
        parts = (along,) if isinstance(along, str) else along
        # `"*"` stands alone: it cannot be combined with named axes of the mesh.
        named_all = isinstance(parts, (tuple, list)) and [*parts] == [EVERY]
        if not named_all and (
            not isinstance(parts, (tuple, list)) or not parts or not all(map(_is_axis, parts))
        ):
            _not_sharding(where, value)
        axes.append((name, tuple(parts)))

    return Sharding(tuple(axes), fsdp)


def _not_sharding(where: Where | str, value: object) -> NoReturn:
    fail(
        where,
        f"shard={value!r} does not say which axis is sharded over which axis of the mesh.",
        '`shard` takes a dict from named axis to axis of the mesh (or several, or "*" for all),'
        ' "fsdp", or both: ("fsdp", {...}).',
        'write shard={"batch": "data"}.',
    )


def read_mesh(where: Where | str, value: object) -> jax.sharding.Mesh | str | None:
    if value is None or isinstance(value, jax.sharding.Mesh):
        return value
    # jitney's own `Mesh` wraps one of JAX's.
    if isinstance(value, Mesh):
        return value.mesh
    if isinstance(value, str) and value == OPTIONAL:
        return OPTIONAL
    fail(
        where,
        f"mesh={value!r} is not a mesh.",
        '`mesh` takes what jitney.mesh(...) or jax.make_mesh gives, or "optional".',
        "write mesh=jitney.mesh(data=4).",
    )


def read_flag(where: Where | str, option: str, value: object) -> bool:
    if not isinstance(value, bool):
        fail(
            where,
            f"{option}={value!r} is neither True nor False.",
            f"`{option}` is a flag.",
            f"write {option}=True.",
        )
    return value


def read_setting(where: Where | str, option: str, value: object) -> bool | None:
    """Parse a flag that overrides a setting of the process; None leaves the choice to it."""
    return None if value is None else read_flag(where, option, value)


def choice(*choices: str) -> Callable[[Where | str, str, object], str]:
    """Return the reader of an option that is one of several words."""

    def read(where: Where | str, option: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            fail(
                where,
                f"{option}={value!r} is not a choice.",
                f"`{option}` is one of {', '.join(choices)}.",
                "choose one.",
            )
        return value

    return read
