"""Remedies of programs in files, of data that are read in chunks, and of checkpoints. Each runs in
an empty folder.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import jitney
from jitney import optimize
from jitney.processes import Checkpoints
from tests._arrays import array, random_key

from ._case import Remedy

X = array([1.0, -2.0, 3.0], np.float32)
HOST = np.asarray(X)
ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)
ASKED, CONTAINER, RUNNING, WRITING = (
    "_export/writing/export_sizes.py",
    "_export/container.py",
    "_export/loading/running.py",
    "_export/writing/export.py",
)
STREAM, SOURCES, SLICES, FILES, RESUME, KEPT = (
    "_stream/stream.py",
    "_stream/data/sources.py",
    "_stream/data/slices.py",
    "_stream/data/files.py",
    "_stream/resume.py",
    "_processes/checkpoints.py:Checkpoints",
)
RUN = "_stream/stream_run.py"


def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)


def scaled(x: Float[Array, "n"], by: int):
    return jnp.sum(x**2) * by


def paired(x: tuple[Float[Array, "n"], Float[Array, "n"]]):
    return jnp.sum(x[0] * x[1])


def mapped(x: Float[Array, ""]):
    return x**2


def printing(x: Float[Array, "n"]):
    jax.debug.print("here")
    return jnp.sum(x**2)


def checked(x: Float[Array, "n"]):
    return eqx.error_if(x, x[0] > 1e6, "too large")


def reshaped(x: Float[Array, "n"]):
    return jnp.sum(x.reshape(2, -1) ** 2)


def of_dict(x: dict):
    return x["a"]


def again(fn, *examples, **more):
    """The function from a file."""
    optimize(fn).export("f.jitney", *examples, **more)
    return jitney.load("f.jitney")


def wide_inside():
    f = wide_file()
    with jax.enable_x64(True):
        return f(X)


def wide_file():
    with jax.enable_x64(True):
        optimize(lambda x: 2 * x.astype(jnp.float64)).export("f.jitney", X)
    return jitney.load("f.jitney")


def damaged(change):
    optimize(total).export("f.jitney", X)
    content = pathlib.Path("f.jitney").read_bytes()
    pathlib.Path("f.jitney").write_bytes(change(content))
    return jitney.load("f.jitney")


def local():
    class Doubling:
        def __call__(self, x):
            return 2 * x

    return Doubling()


def inside_of_jit():
    return jax.jit(lambda x: (optimize(total).export("f.jitney", x), x)[1])(X)


def energy(rows: Float[Array, "n d"]):
    return jnp.sum(rows**2, axis=0)


def named(rows: Float[Array, "n d"], chunk: int):
    return jnp.sum(rows**2, axis=0) * chunk


def by_name(rows: Float[Array, "n d"], *, retries: int = 1):
    return jnp.sum(rows**2, axis=0) * retries


def unnamed(rows: Float[Array, "8 4"]):
    return jnp.sum(rows**2, axis=0)


def doubled(rows: Float[Array, "n d"]):
    return rows * 2


def ordered(rows: Float[Array, "n d"]):
    return jnp.sum(jnp.sort(rows, axis=0), axis=0)


def transformed(rows: Float[Array, "n d"]):
    return jnp.fft.fft(rows, axis=0).real


def sums_in_turns(column: Float[Array, "n"]):
    return jax.lax.fori_loop(0, 2, lambda _, total: jnp.sin(total + column.sum()), jnp.float32(0))


def backwards(rows: Float[Array, "n d"]):
    return jax.lax.cumsum(rows, axis=0, reverse=True)[0]


def drawn(rows: Float[Array, "n d"], keys: Key[Array, "n"]):
    return jnp.sum(rows), jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)


def drawn_words(rows: Float[Array, "n d"], keys: Key[Array, "n"]):
    total, keys = drawn(rows, keys)
    return total, jax.random.key_data(keys)


CHUNK: dict[str, Any] = {"chunk": {"n": 3}}
PLAINLY = np.sum(ROWS**2, axis=0)


def stream(rows, fn=energy, *others, **more):
    return jitney.stream(optimize(fn), rows, *others, **{**CHUNK, "progress": False, **more}).result


def once():
    """Chunks that are read once."""
    yield ROWS[:4]
    yield ROWS[4:]


class Anew:
    def __iter__(self):
        return iter([ROWS[:4], ROWS[4:]])


class Empty:
    def __iter__(self):
        return iter(())


class Growing:
    """More rows in each reading."""

    def __init__(self):
        self.times = 0

    def __iter__(self):
        self.times += 1
        return iter([ROWS[:4]] * self.times)


def of_csv():
    np.savetxt("rows.csv", ROWS)
    return stream(pathlib.Path("rows.csv"))


def of_broken():
    np.save("rows.npy", ROWS)
    pathlib.Path("rows.npy").write_bytes(pathlib.Path("rows.npy").read_bytes()[:90])
    return stream(pathlib.Path("rows.npy"))


def of_saved():
    np.save("rows.npy", ROWS)
    return stream(pathlib.Path("rows.npy"))


def of_member(**arrays):
    np.savez("rows.npz", **arrays)
    return stream(pathlib.Path("rows.npz"))


def of_columns(compress, order):
    compress("rows.npz", rows=np.array(ROWS, order=order))
    return stream(pathlib.Path("rows.npz"))


def checkpoint_of_other():
    stream(ROWS, checkpoint="run.ckpt", checkpoint_every=1)
    pathlib.Path("run.ckpt").write_bytes(b"nothing")
    return stream(ROWS, checkpoint="run.ckpt")


def saved(*steps, tree=None, **more):
    found = Checkpoints("run", **more)
    for step in steps:
        found.save(step, {"w": X} if tree is None else tree)
    return found


CASES = [
    # Export.
    Remedy(
        f"{ASKED}:size_combinations",
        "name one",
        lambda: again(total, sizes={"n": ()}),
        lambda: again(total, sizes={"n": (3,)})(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{ASKED}:size_combinations",
        "write {…: range(2, 1025)}",
        lambda: again(total, sizes={"n": 2.5}),
        lambda: again(total, sizes={"n": range(2, 1025)})(X),
        HOST @ HOST,
        core=True,
    ),
    Remedy(
        f"{ASKED}:missing_sizes",
        "list the sizes, or leave out",
        lambda: optimize(chunk={"n": 2})(total).export("f.jitney", sizes={"n": range(2, 9)}),
        lambda: again(total, sizes={"n": range(2, 9)})(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{ASKED}:resizing",
        "correct the name",
        lambda: again(total, X, sizes={"m": 3}),
        lambda: again(total, X, sizes={"n": 3})(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{CONTAINER}:path_of",
        'name it: "fit.jitney"',
        lambda: optimize(total).export(3, X),
        lambda: (optimize(total).export("fit.jitney", X), jitney.load("fit.jitney")(X))[1],
        HOST @ HOST,
    ),
    Remedy(
        f"{CONTAINER}:read",
        "correct the path",
        lambda: (again(total, X), jitney.load("g.jitney")),
        lambda: again(total, X)(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{CONTAINER}:read",
        "copy or export it again",
        lambda: damaged(lambda content: content[:-1] + bytes([content[-1] ^ 1])),
        lambda: again(total, X)(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{CONTAINER}:_check_line",
        "correct the path",
        lambda: damaged(lambda _: b"text\n"),
        lambda: again(total, X)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_export/writing/lowering.py:_needs_sizes",
        "list the sizes instead",
        lambda: again(reshaped, sizes={"n": range(2, 9)}),
        lambda: again(reshaped, sizes={"n": (4, 6)})(ROWS[0]),
        ROWS[0] @ ROWS[0],
    ),
    Remedy(
        "_export/writing/lowering.py:_refuse_callbacks",
        "leave out what calls Python",
        lambda: again(printing, X),
        lambda: again(total, X)(X),
        HOST @ HOST,
    ),
    Remedy(
        f"{RUNNING}:_no_gradient",
        "export it with vjp_order=1",
        lambda: jax.grad(again(total, X))(X),
        lambda: jax.grad(again(total, X, vjp_order=1))(X),
        2 * HOST,
    ),
    Remedy(
        f"{RUNNING}:_no_gradient",
        "or export `f.value_and_grad`",
        lambda: jax.grad(again(total, X))(X),
        lambda: (
            optimize(total).value_and_grad.export("g.jitney", X, wrt="x"),
            jitney.load("g.jitney")(X)[1],
        )[1],
        2 * HOST,
    ),
    Remedy(
        f"{RUNNING}:_no_further",
        "export it with vjp_order=2",
        lambda: jax.grad(lambda x: jnp.sum(jax.grad(again(total, X, vjp_order=1))(x)))(X),
        lambda: jax.grad(lambda x: jnp.sum(jax.grad(again(total, X, vjp_order=2))(x)))(X),
        np.full(3, 2.0),
    ),
    Remedy(
        f"{RUNNING}:_vmap_error",
        "export it with jitney.optimize(vmap=...)",
        lambda: jax.vmap(again(mapped, X[0]))(X),
        lambda: (optimize(vmap="b")(mapped).export("g.jitney", X), jitney.load("g.jitney")(X))[1],
        HOST**2,
    ),
    Remedy(
        f"{RUNNING}:_vmap_error",
        "with `jax.lax.map`",
        lambda: jax.vmap(again(mapped, X[0]))(X),
        lambda: jax.lax.map(again(mapped, X[0]), X),
        HOST**2,
    ),
    Remedy(
        f"{RUNNING}:_not_forward",
        "go backwards: vjp_order=1",
        lambda: jax.jvp(again(total, X, vjp_order=1), (X,), (X,)),
        lambda: jax.grad(again(total, X, vjp_order=1))(X),
        2 * HOST,
    ),
    Remedy(
        f"{RUNNING}:_not_forward",
        "export `f.jvp`",
        lambda: jax.jvp(again(total, X, vjp_order=1), (X,), (X,)),
        lambda: (
            optimize(total).jvp.export("g.jitney", X, tangent_of_x=X, wrt="x"),
            jitney.load("g.jitney")(X, tangent_of_x=X)[1],
        )[1],
        2 * HOST @ HOST,
    ),
    Remedy(
        f"{RUNNING}:_not_forward",
        "or `f.jacobian`",
        lambda: jax.jvp(again(total, X, vjp_order=1), (X,), (X,)),
        lambda: (
            optimize(total).jacobian.export("g.jitney", X, wrt="x"),
            jitney.load("g.jitney")(X),
        )[1],
        2 * HOST,
    ),
    Remedy(
        f"{RUNNING}:_look_at",
        "call it outside",
        lambda: jax.jit(again(checked, X))(X),
        lambda: again(checked, X)(X),
        HOST,
    ),
    Remedy(
        f"{RUNNING}:check_x64",
        "call it inside `with jax.enable_x64(True):`",
        lambda: wide_file()(X),
        wide_inside,
        2 * HOST,
    ),
    Remedy(
        "_export/trees.py:Taking._demand",
        "pass that",
        lambda: again(paired, (X, X))([X, X, X]),
        lambda: again(paired, (X, X))((X, X)),
        HOST @ HOST,
    ),
    Remedy(
        "_export/trees.py:Taking._demand",
        "or export the function with arguments like these",
        lambda: again(of_dict, {"a": X})({"b": X, "a": X}),
        lambda: again(of_dict, {"b": X, "a": X})({"b": X, "a": X}),
        HOST,
    ),
    Remedy(
        "_export/trees.py:Taking._static",
        "pass that value",
        lambda: again(scaled, X, 2)(X, 3),
        lambda: again(scaled, X, 2)(X, 2),
        2 * HOST @ HOST,
    ),
    Remedy(
        "_export/trees.py:Taking._static",
        "or export the function with this one",
        lambda: again(scaled, X, 2)(X, 3),
        lambda: again(scaled, X, 3)(X, 3),
        3 * HOST @ HOST,
    ),
    Remedy(
        f"{WRITING}:_Writer._demand_untraced",
        "export it outside of `jit`",
        inside_of_jit,
        lambda: again(total, X)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_export/writing/exportable.py:check_exportable",
        "write vjp_order=1",
        lambda: again(total, X, vjp_order="one"),
        lambda: jax.grad(again(total, X, vjp_order=1))(X),
        2 * HOST,
    ),
    Remedy(
        "_export/writing/exportable.py:check_exportable",
        "export it without: jitney.optimize(...)",
        lambda: optimize(debug_nans=True)(total).export("f.jitney", X),
        lambda: again(total, X)(X),
        HOST @ HOST,
    ),
    Remedy(
        "_export/writing/parts.py:portable_data",
        "define a function or a class at the top of its module",
        lambda: again(lambda x, f: f(x), X, local()),
        lambda: again(lambda x, f: f(x), X, jnp.sin)(X, jnp.sin),
        np.sin(HOST),
    ),
    # Streams.
    Remedy(
        f"{STREAM}:_check_keywords",
        "stream a program without `roll`",
        lambda: jitney.stream(optimize(roll="auto")(energy), ROWS, **CHUNK),
        lambda: stream(ROWS),
        PLAINLY,
    ),
    Remedy(
        f"{STREAM}:_check_keywords",
        "write retries=2",
        lambda: stream(ROWS, retries="two"),
        lambda: stream(ROWS, retries=2),
        PLAINLY,
    ),
    Remedy(
        f"{STREAM}:_check_keywords",
        "write progress=False",
        lambda: stream(ROWS, progress=3),
        lambda: stream(ROWS, progress=False),
        PLAINLY,
    ),
    Remedy(
        "_stream/arguments.py:_warn_by_names",
        "write ….stream(…), or pass them by position",
        lambda: optimize(energy).stream({"rows": ROWS}, **CHUNK, progress=False),
        lambda: optimize(energy).stream(rows=ROWS, **CHUNK, progress=False).result,
        PLAINLY,
        core=True,
    ),
    Remedy(
        "_stream/arguments.py:_refuse_ambiguous",
        "write ….stream(…, ...)",
        lambda: optimize(named).stream(ROWS, chunk=3, progress=False),
        lambda: optimize(named).stream(ROWS, 3, progress=False).result,
        PLAINLY * 3,
        core=True,
    ),
    Remedy(
        "_stream/arguments.py:_refuse_ambiguous",
        "bind it first, with …, and stream that",
        lambda: optimize(by_name).stream(ROWS, retries=3, progress=False),
        lambda: optimize(functools.partial(by_name, retries=3)).stream(ROWS, progress=False).result,
        PLAINLY * 3,
    ),
    Remedy(
        "_stream/chunk_axis.py:choose_axis",
        'annotate the arrays: x: Float[Array, "points"]',
        lambda: optimize(unnamed).stream(ROWS, progress=False),
        lambda: stream(ROWS, chunk=None),
        PLAINLY,
    ),
    Remedy(
        "_stream/chunk_axis.py:_unclear",
        'write chunk={"…": "auto"}',
        lambda: stream(ROWS[:4], chunk=None),
        lambda: stream(ROWS[:4], chunk={"n": "auto"}),
        np.sum(ROWS[:4] ** 2, axis=0),
    ),
    Remedy(
        "_report/streamed.py:Streamed.value",
        "write .result",
        lambda: optimize(energy).stream(ROWS, progress=False).value,
        lambda: optimize(energy).stream(ROWS, progress=False).result,
        PLAINLY,
    ),
    Remedy(
        "_report/streamed.py:_not_an_array",
        "take the result first: f.stream(x).result",
        lambda: jnp.asarray(optimize(energy).stream(ROWS, progress=False)),
        lambda: jnp.asarray(optimize(energy).stream(ROWS, progress=False).result),
        PLAINLY,
    ),
    Remedy(
        f"{STREAM}:_stage",
        "or correct the name",
        lambda: stream(ROWS, chunk={"m": 3}),
        lambda: stream(ROWS),
        PLAINLY,
    ),
    Remedy(
        "_stream/chunk_axis.py:read_chunk",
        'write chunk={"…": 65536}',
        lambda: stream(ROWS, chunk="all"),
        lambda: stream(ROWS, chunk={"n": 65536}),
        PLAINLY,
    ),
    Remedy(
        "_stream/arguments.py:_refuse_misspelt",
        "did you mean the keyword … of `stream`?",
        lambda: stream(ROWS, checkpiont="run.ckpt"),
        lambda: stream(ROWS, checkpoint="run.ckpt"),
        PLAINLY,
    ),
    Remedy(
        "_stages/chunking/refusals.py:_WITHOUT",
        "stream along another axis",
        lambda: stream(ROWS, transformed),
        lambda: stream(ROWS, transformed, chunk={"d": 2}),
        np.fft.fft(ROWS, axis=0).real,
    ),
    Remedy(
        "_stages/chunking/refusals.py:cannot_stream",
        "call it on arrays in memory with chunk={…: ...}",
        lambda: stream(ROWS[:, 0], sums_in_turns),
        lambda: optimize(sums_in_turns, chunk={"n": 3})(ROWS[:, 0]),
        lambda: jax.jit(sums_in_turns)(ROWS[:, 0]),
    ),
    Remedy(
        f"{RUN}:StreamRun._check_checkpoint",
        "drop checkpoint=..., or return sums",
        lambda: stream(ROWS, doubled, checkpoint="run.ckpt"),
        lambda: stream(ROWS, doubled),
        2 * ROWS,
    ),
    Remedy(
        f"{RUN}:StreamRun._refuse_sequential",
        "pass an array, or the path",
        lambda: stream(Anew(), backwards),
        lambda: stream(ROWS, backwards),
        ROWS.sum(0),
    ),
    Remedy(
        "_stream/steps.py:_check_keys",
        "return `jax.random.key_data`",
        lambda: stream(ROWS, drawn, jax.random.split(random_key(0), 8)),
        lambda: stream(ROWS, drawn_words, jax.random.split(random_key(0), 8)),
        lambda: drawn_words(ROWS, jax.random.split(random_key(0), 8)),
    ),
    Remedy(
        "_stream/chosen_steps.py:_suiting",
        "give it memory=…",
        lambda: jitney.stream(optimize(memory="16 B")(energy), ROWS, chunk={"n": "auto"}),
        lambda: (
            jitney.stream(
                optimize(memory="1 MiB")(energy),
                ROWS,
                chunk={"n": "auto"},
                progress=False,
            ).result
        ),
        PLAINLY,
    ),
    Remedy(
        f"{SOURCES}:_from_iterable",
        "pass an object whose `__iter__` starts again",
        lambda: stream(once()),
        lambda: stream(Anew()),
        PLAINLY,
    ),
    Remedy(
        f"{SOURCES}:_from_iterable",
        "pass an empty array",
        lambda: stream(Empty()),
        lambda: stream(ROWS[:0]),
        np.zeros(4),
    ),
    Remedy(
        f"{SLICES}:Sequential._slice",
        "let each iteration give the same chunks",
        lambda: stream(Growing()),
        lambda: stream(Anew()),
        PLAINLY,
    ),
    Remedy(f"{FILES}:open_file", "open it, and pass the array", of_csv, of_saved, PLAINLY),
    Remedy(f"{FILES}:open_file", "write it again, with np.save", of_broken, of_saved, PLAINLY),
    Remedy(
        f"{FILES}:_member",
        "save it with np.savez(..., …=...)",
        lambda: of_member(columns=ROWS),
        lambda: of_member(rows=ROWS),
        PLAINLY,
    ),
    Remedy(
        f"{FILES}:_member",
        "save it row by row",
        lambda: of_columns(np.savez_compressed, "F"),
        lambda: of_columns(np.savez_compressed, "C"),
        PLAINLY,
    ),
    Remedy(
        f"{FILES}:_member",
        "or not compressed",
        lambda: of_columns(np.savez_compressed, "F"),
        lambda: of_columns(np.savez, "F"),
        PLAINLY,
    ),
    Remedy(
        f"{SOURCES}:_unlike",
        "convert them before",
        lambda: stream([ROWS, ROWS.astype(np.float16)]),
        lambda: stream([ROWS, ROWS.astype(np.float16).astype(np.float32)]),
        2 * PLAINLY,
    ),
    Remedy(
        f"{RESUME}:_interval",
        "write checkpoint_every=100",
        lambda: stream(ROWS, checkpoint="run.ckpt", checkpoint_every="often"),
        lambda: stream(ROWS, checkpoint="run.ckpt", checkpoint_every=100),
        PLAINLY,
    ),
    Remedy(
        f"{RESUME}:Checkpoint.__init__",
        'write checkpoint="run.ckpt"',
        lambda: stream(ROWS, checkpoint=3),
        lambda: stream(ROWS, checkpoint="run.ckpt"),
        PLAINLY,
    ),
    Remedy(
        f"{RESUME}:Checkpoint.__init__",
        "make the folder",
        lambda: stream(ROWS, checkpoint="new/run.ckpt"),
        lambda: (pathlib.Path("new").mkdir(), stream(ROWS, checkpoint="new/run.ckpt"))[1],
        PLAINLY,
    ),
    Remedy(
        f"{RESUME}:Checkpoint.read",
        "give another file name",
        checkpoint_of_other,
        lambda: stream(ROWS, checkpoint="other.ckpt"),
        PLAINLY,
    ),
    Remedy(
        f"{RESUME}:Checkpoint.read",
        "or remove the file to start again",
        checkpoint_of_other,
        lambda: (pathlib.Path("run.ckpt").unlink(), stream(ROWS, checkpoint="run.ckpt"))[1],
        PLAINLY,
    ),
    # Checkpoints.
    Remedy(
        f"{KEPT}.__init__",
        'write jitney.processes.Checkpoints("run")',
        lambda: Checkpoints(3),
        lambda: list(Checkpoints("run").steps),
        [],
    ),
    Remedy(
        f"{KEPT}.__init__",
        "write keep=2",
        lambda: Checkpoints("run", keep=0),
        lambda: list(Checkpoints("run", keep=2).steps),
        [],
    ),
    Remedy(
        f"{KEPT}._number",
        "pass an int",
        lambda: Checkpoints("run").save("one", {"w": X}),
        lambda: list(saved(1).steps),
        [1],
    ),
    Remedy(
        f"{KEPT}.save",
        "go on from the newest",
        lambda: saved(5, 3),
        lambda: list(saved(6).steps)[-1:],
        [6],
    ),
    Remedy(
        f"{KEPT}.save",
        "pass a tree that has some",
        lambda: saved(1, tree={}),
        lambda: list(saved(1).steps),
        [1],
    ),
]
