"""Remedies of programs that cannot be written to a file as they are. Each runs in an empty
folder.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import sys
import warnings
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._export.container import read, write
from tests._arrays import array

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
FOUR, NINE = np.arange(4, dtype=np.float32), np.arange(9, dtype=np.float32)
ASKED, LOWERING, TREES, VERSIONS, WRITING = (
    "_export/writing/export_sizes.py:arrays_at",
    "_export/writing/lowering.py:lower_program",
    "_export/trees.py:resolve_tree",
    "_export/loading/versions.py",
    "_export/writing/export.py",
)


def loaded(fn, *examples, **more):
    """The function from a file."""
    optimize(fn).export("f.jitney", *examples, **more)
    return jitney.load("f.jitney")


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def dot(x: Float[Array, "n"], y: Float[Array, "n"]):
    return jnp.sum(x * y)


def padded(x: Float[Array, "max(n,4)"], y: Float[Array, "n"]):
    return jnp.sum(x) + jnp.sum(y)


def of_rows(fn, *rows):
    """The result of a loaded function of rows."""
    jitney.optimize(vmap="row", pad={"n": "pow2"})(fn).export("f.jitney", *rows)
    return jitney.load("f.jitney")(*rows)


def of_pair(pair: tuple[Float[Array, "n"], Float[Array, "n"]]):
    return dot(*pair)


def halved(x: Float[Array, "n/2"], y: Float[Array, "n"]):
    return jnp.sum(x) + jnp.sum(y)


def checked_inside(x):
    """A check where it cannot be followed."""
    return jax.lax.reduce(
        x, np.float32(0), lambda a, b: eqx.error_if(a + b, a > 1e6, "too large"), (0,)
    )


def unchecked(x):
    return jax.lax.reduce(x, np.float32(0), lambda a, b: a + b, (0,))


def checked(x):
    return eqx.error_if(x, x[0] > 1e6, "too large")


def checked_in_a_new_form():
    """As a later Equinox may write it."""
    with patch("jitney._export.writing.lowering.messages_of", lambda _: None):
        return loaded(checked, X)


def checked_around():
    """The check stands outside of the file."""
    add = loaded(unchecked, X)
    return add(eqx.error_if(X, X[0] > 1e6, "too large"))


def of_own_library(x):
    return jax.ffi.ffi_call("own_sine", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def until(x):
    """A loop of unknown length, which has no derivative backwards."""
    return jnp.sum(jax.lax.while_loop(lambda v: v[0] < 5, lambda v: v * 2, x))


def for_three(x):
    return jnp.sum(jax.lax.fori_loop(0, 3, lambda _, v: v * 2, x))


def totals(*xs: Float[Array, "n"]):
    return sum(jnp.sum(x**2) for x in xs)


class Linear(eqx.Module):
    w: Float[Array, "n"]

    @optimize
    def apply(self, x: Float[Array, "n"]):
        return jnp.sum(self.w * x)


def of_linear(model: Linear, x: Float[Array, "n"]):
    return jnp.sum(model.w * x)


def of_shape():
    return Linear(jax.ShapeDtypeStruct((3,), np.float32))


def saved(program, *examples, **more):
    program.export("f.jitney", *examples, **more)
    return jitney.load("f.jitney")


CLASS = """
import equinox as eqx, jitney
from jaxtyping import Array

class Model(eqx.Module):
    {name}: Array

@jitney.optimize
def twice(model: Model):
    return Model(2 * model.{name})
"""


def module(name):
    """A module in this folder whose class has a field of this name."""
    sys.modules.pop("remedied", None)
    sys.path.insert(0, "")
    pathlib.Path("remedied.py").write_text(CLASS.format(name=name))
    sys.path_importer_cache.clear()
    scope = __import__("remedied")
    # a file of the same second has the same bytecode otherwise
    exec(CLASS.format(name=name), scope.__dict__)
    return scope


def of_class(exported, now):
    """Exported with one field, loaded with another; as it is loaded, and called with it."""
    was = module(exported)
    was.twice.export("f.jitney", was.Model(X))
    model = module(now).Model(X)
    return getattr(jitney.load("f.jitney")(model), now)


def without_class():
    was = module("w")
    was.twice.export("f.jitney", was.Model(X))
    pathlib.Path("remedied.py").unlink()
    sys.modules.pop("remedied")
    sys.path_importer_cache.clear()
    return jitney.load("f.jitney")({"w": X})["w"]


FILE = pathlib.Path("f.jitney")


def told_otherwise(change):
    """A file whose header says something else, under a digest that is right."""
    optimize(total).export(FILE, X)
    content = read(FILE)
    header = json.loads(json.dumps(dict(content.header)))
    change(header)
    write(FILE, header, content.members, "a test")
    return jitney.load(FILE)(X)


def longer():
    """A file with a byte more than its parts have, under a digest that is right."""
    optimize(total).export(FILE, X)
    content = FILE.read_bytes()
    line = content[: content.index(b"\n") + 1]
    body = content[len(line) + hashlib.sha256().digest_size :] + b"x"
    FILE.write_bytes(line + hashlib.sha256(line + body).digest() + body)
    return jitney.load(FILE)


def of_format(number):
    optimize(total).export(FILE, X)
    line, _, rest = FILE.read_bytes().partition(b"\n")
    FILE.write_bytes(line[:-4] + number + b"\n" + rest)
    return jitney.load(FILE)


def unreadable():
    """The system does not let it be read."""
    optimize(total).export(FILE, X)
    with patch.object(pathlib.Path, "open", side_effect=PermissionError(13, "Permission denied")):
        return jitney.load(FILE)


def of_other_jax():
    """As JAX says of what is past its window."""
    optimize(total).export(FILE, X)
    with patch("jax.export.deserialize", side_effect=ValueError("Exported too long ago.")):
        return jitney.load(FILE)(X)


def without_flatbuffers():
    with patch.dict(sys.modules, {"flatbuffers": None}):
        return loaded(total, X)


def exported_into(*folders):
    for folder in folders:
        pathlib.Path(folder).mkdir()
    optimize(total).export("new/f.jitney", X)
    return jitney.load("new/f.jitney")(X)


def now():
    return loaded(total, X)(X)


def at_each_size(*sizes):
    """A function whose Python looks at its size, from a file of these sizes, at 6."""

    @jitney.optimize(pad={"n": "pow2"})
    def f(x: Float[Array, "n"]):
        return x * 2 if x.shape[0] == 6 else x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitney.errors.PaddingWarning)
        f.export("f.jitney", sizes={"n": sizes})
    return jitney.load("f.jitney")(NINE[:6])


def products_of_rows(*sizes, **options):
    """Of a function whose derivative cannot be padded, from a file."""

    @jitney.optimize(vmap="row", pad={"n": "pow2"})
    def f(x: Float[Array, "n"]):
        return jnp.prod(jnp.cumprod(1 + x)[-1:])

    f.export("f.jitney", [NINE[:size] for size in sizes], **options)
    return jitney.load("f.jitney")([NINE[:size] for size in sizes])


CASES = [
    Remedy(
        "_export/writing/export.py:_Writer._serialize_rows",
        "export rows without vjp_order",
        lambda: products_of_rows(3, 4, vjp_order=1),
        lambda: products_of_rows(3, 4),
        np.array([6.0, 24.0], np.float32),
    ),
    Remedy(
        "_export/loading/loaded.py:Loaded._without_numbers",
        "export it for that size too",
        lambda: at_each_size(5),
        lambda: at_each_size(5, 6),
        2 * NINE[:6],
    ),
    Remedy(
        ASKED,
        "pass no example of that array",
        lambda: loaded(padded, FOUR[:3], FOUR, sizes={"n": 5}),
        lambda: loaded(padded, sizes={"n": 5})(NINE[:5], NINE[:5]),
        2 * np.sum(NINE[:5]),
    ),
    Remedy(
        ASKED,
        "or one of that size",
        lambda: loaded(padded, FOUR[:3], FOUR, sizes={"n": 5}),
        lambda: loaded(padded, FOUR, FOUR, sizes={"n": 5})(NINE[:5], NINE[:5]),
        2 * np.sum(NINE[:5]),
    ),
    Remedy(
        ASKED,
        "leave that axis out of `sizes` and pass examples",
        lambda: loaded(halved, sizes={"n": 9}),
        lambda: loaded(halved, FOUR[:2], FOUR)(FOUR[:2], FOUR),
        np.sum(FOUR[:2]) + np.sum(FOUR),
    ),
    Remedy(
        ASKED,
        "or ask for a size at which it is a whole number",
        lambda: loaded(halved, sizes={"n": 9}),
        lambda: loaded(halved, sizes={"n": 8})(NINE[:4], NINE[:8]),
        np.sum(NINE[:4]) + np.sum(NINE[:8]),
    ),
    Remedy(
        LOWERING,
        "drop the check",
        lambda: loaded(checked_inside, X),
        lambda: loaded(unchecked, X)(X),
        HOST.sum(),
    ),
    Remedy(
        LOWERING,
        "or export what stands around it",
        lambda: loaded(checked_inside, X),
        checked_around,
        HOST.sum(),
    ),
    Remedy(
        "_export/writing/lowering.py:_messages",
        "drop the check",
        checked_in_a_new_form,
        lambda: loaded(lambda x: x, X)(X),
        HOST,
    ),
    Remedy(
        LOWERING,
        "replace that operation",
        lambda: loaded(of_own_library, X),
        lambda: loaded(jnp.sin, X)(X),
        np.sin(HOST),
    ),
    Remedy(
        TREES,
        "export it again",
        lambda: of_class("w", "v"),
        lambda: of_class("v", "v"),
        2 * HOST,
    ),
    Remedy(
        TREES,
        "or load it where the class is as it was",
        lambda: of_class("w", "v"),
        lambda: of_class("w", "w"),
        2 * HOST,
    ),
    Remedy(
        TREES,
        "or is not there: it is a dict then",
        lambda: of_class("w", "v"),
        without_class,
        2 * HOST,
    ),
    Remedy(
        "_export/writing/parts.py:bound_arrays",
        "bind it to arrays",
        lambda: saved(of_shape().apply, X),
        lambda: saved(Linear(X).apply, X)(X),
        HOST @ HOST,
        core=True,
    ),
    Remedy(
        "_export/writing/parts.py:bound_arrays",
        "or export the function and pass them when it is loaded",
        lambda: saved(of_shape().apply, X),
        lambda: loaded(of_linear, of_shape(), X)(Linear(X), X),
        HOST @ HOST,
    ),
    Remedy(
        "_export/writing/parts.py:bound_arrays",
        "leave that axis out of `sizes`",
        lambda: saved(optimize(functools.partial(dot, X)), X, sizes={"n": 5}),
        lambda: saved(optimize(functools.partial(dot, X)), X)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_export/writing/exportable.py:bound_names",
        "export a function that names them",
        lambda: saved(optimize(functools.partial(totals, X)), X),
        lambda: saved(optimize(functools.partial(dot, X)), X)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_export/writing/parts.py:serialize_program",
        "export it without vjp_order",
        lambda: loaded(until, X, vjp_order=1),
        lambda: loaded(until, X)(X),
        8 * HOST.sum(),
    ),
    Remedy(
        "_export/writing/parts.py:serialize_program",
        "or change what cannot be differentiated",
        lambda: loaded(until, X, vjp_order=1),
        lambda: jax.grad(loaded(for_three, X, vjp_order=1))(X),
        np.full(3, 8.0),
    ),
    Remedy(
        "_program/examples.py:_no_size",
        "pass an example for",
        lambda: optimize(of_digits).compile(sizes={"n": 4}),
        lambda: optimize(of_digits).compile(FOUR[:1], sizes={"n": 4})(FOUR[:1], FOUR),
        FOUR.sum(),
    ),
    # Files that say something else than jitney has written, and what the system does not allow.
    Remedy(
        "_export/container.py:write",
        "fix what the system reports",
        exported_into,
        lambda: exported_into("new"),
        HOST @ HOST,
    ),
    Remedy(
        f"{WRITING}:_Writer._refuse_parts",
        "an argument for each part",
        lambda: of_rows(of_pair, ([FOUR, NINE], [FOUR, NINE])),
        lambda: of_rows(dot, [FOUR, NINE], [FOUR, NINE]),
        np.array([FOUR @ FOUR, NINE @ NINE]),
    ),
    Remedy("_export/container.py:write", "or name another file", exported_into, now, HOST @ HOST),
    Remedy(
        "_export/container.py:read", "fix what the system reports", unreadable, now, HOST @ HOST
    ),
    Remedy(
        "_export/container.py:_check_line",
        "or export it again with this one",
        lambda: of_format(b"0999"),
        now,
        HOST @ HOST,
    ),
    Remedy("_export/container.py:_split_members", "export it again", longer, now, HOST @ HOST),
    Remedy(
        "_export/header.py:_foreign",
        "export it again; its digest is right",
        lambda: told_otherwise(lambda header: header.update(bound=3)),
        now,
        HOST @ HOST,
    ),
    Remedy(
        f"{VERSIONS}:check_version",
        "or export it with this one",
        lambda: told_otherwise(lambda header: header.update(jax="99.0.1")),
        now,
        HOST @ HOST,
    ),
    Remedy(
        f"{VERSIONS}:check_version",
        "re-export it with a current JAX",
        lambda: told_otherwise(lambda header: header["programs"][0].update(calling_convention=999)),
        now,
        HOST @ HOST,
    ),
    Remedy(
        f"{VERSIONS}:_no_program",
        "export it again; its digest is right",
        lambda: told_otherwise(
            lambda header: header["programs"][0]["results"][0].update(dtype="float16")
        ),
        now,
        HOST @ HOST,
    ),
    Remedy(
        f"{VERSIONS}:_deserialize_member",
        "export it again, or load it with a JAX of its time",
        of_other_jax,
        now,
        HOST @ HOST,
    ),
    Remedy(
        f"{VERSIONS}:check_platform",
        "export it with platforms=",
        lambda: loaded(total, X, platforms=("tpu",))(X),
        lambda: loaded(total, X, platforms=("tpu", jax.default_backend()))(X),
        HOST @ HOST,
    ),
    Remedy(
        "_export/container.py:missing_flatbuffers",
        'install it: pip install "jitney[export]"',  # met by who writes
        without_flatbuffers,
        now,
        HOST @ HOST,
    ),
]


def of_digits(x: Float[Array, "len(str(n))"], y: Float[Array, "n"]):
    return jnp.sum(x) + jnp.sum(y)
