"""Remedies of rows of unlike lengths."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import jitney
from jitney import optimize
from jitney.types import PaddedRows

from ._case import Remedy

ROWS = [np.arange(n, dtype=np.float32) for n in (3, 5, 9)]
SUMS = np.array([3, 10, 36], np.float32)
WHOLE = np.concatenate(ROWS)
LENGTHS = np.array([3, 5, 9])
PADDED = np.stack([np.pad(row, (0, 9 - len(row)), constant_values=np.nan) for row in ROWS])
STREAM = "_stream/row_stream.py"
COLUMNS, CALLS = "_program/rows/columns.py", "_program/rows/row_calls.py"
CHECKS = "_program/rows/row_checks.py"
LOADED = "_export/loading/loaded_rows.py:LoadedRows"


def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x)


def scaled(x: Float[Array, "n"], w: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x * w)


def doubled(x: Float[Array, "n"]):
    return x * 2


def doubled_annotated(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x * 2


def spectrum(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.fft.fft(x).real)


def from_three(x: Float[Array, "n"]):
    if x.shape[0] == 2:
        raise ValueError("not of two")
    return x * 2


class Curve(eqx.Module):
    x: Float[Array, "n"]
    scale: Float[Array, ""] | float
    names: tuple[str, ...] = ()


def of_curve(curve: Curve) -> Float[Array, ""]:
    return jnp.sum(curve.x) * curve.scale


def printed(x: Float[Array, "n"]) -> Float[Array, ""]:
    jax.debug.callback(lambda total: None, jnp.sum(x))
    return jnp.sum(x)


def counted(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(x) * (1 - x.shape[0] / (x.shape[0] + 1))


def wide(x: Float[Array, "n"]):
    with jax.enable_x64(True):
        return jnp.sum(x.astype(jnp.float64))


def in_64_bits():
    with jax.enable_x64(True):
        return by_row(wide)(ROWS)


def multiplied(x: Float[Array, "n"], a: float):
    return jnp.sum(x) * a


def donated(*, copies=False, donate="x"):
    """A row after a call that took it, and what the call returned."""
    x = jnp.asarray(ROWS[0])
    out = optimize(donate=donate)(lambda x: x * 2)(jnp.copy(x) if copies else x)
    return x, out


def abstract(row):
    return jax.ShapeDtypeStruct(row.shape, row.dtype)


def through_a_file(program, *examples, **more):
    program.export("f.jitney", *examples, **more)
    return jitney.load("f.jitney")


def pairs(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(jnp.outer(x, x))


def unlike(x: Float[Array, "n"]):
    return (0.0 if x.shape[0] == 0 else 1.0), jnp.sum(x)


def one_device():
    return jitney.mesh(data=1, devices=jax.devices()[:1])


def streamed(rows, **keywords):
    return jitney.stream(by_row(total), rows, progress=False, **keywords).result


def times(w: Float[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
    return w * jnp.sum(x)


def summed(**keywords):
    return jitney.accumulate(by_row(times), axis="row", microbatch=2, **keywords)


def drawn(generator):
    def draws(key: Key[Array, ""], x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x) + jax.random.normal(key)

    draws.__name__ = generator
    return draws


def by_row(fn, **options):
    return optimize(**{"vmap": "row", "pad": {"n": "pow2"}, **options})(fn)


CASES = [
    Remedy(
        "_stages/derivatives/gradients.py:Directional._vjp",
        "annotate the result of the function, as its arguments",
        lambda: by_row(doubled).vjp(ROWS, cotangent=ROWS),
        lambda: by_row(doubled_annotated).vjp(ROWS, cotangent=ROWS)[1]["x"][2],
        2 * ROWS[2],
    ),
    Remedy(
        "_contract/check.py:_not_an_array",
        "map them as rows",
        lambda: optimize(total)(ROWS),
        lambda: by_row(total)(ROWS),
        SUMS,
        core=True,
    ),
    Remedy(
        "_program/core.py:CompiledFunction.refuse_rows",
        "call it with such rows",
        lambda: by_row(total).lower(ROWS),
        lambda: by_row(total)(ROWS),
        SUMS,
    ),
    Remedy(
        f"{COLUMNS}:each_row",
        "pass rows of one structure",
        lambda: by_row(of_curve)([Curve(ROWS[0], 1.0), Curve(ROWS[1], 1.0, ("b",))]),
        lambda: by_row(of_curve)([Curve(ROWS[0], 1.0), Curve(ROWS[1], 1.0)]),
        SUMS[:2],
    ),
    Remedy(
        f"{COLUMNS}:of_leaves",
        "pass numbers that differ as arrays",
        lambda: by_row(of_curve)([Curve(ROWS[0], 1.0), Curve(ROWS[1], 2.0)]),
        lambda: by_row(of_curve)(
            [Curve(ROWS[0], np.array(1, np.float32)), Curve(ROWS[1], np.array(2, np.float32))]
        ),
        np.array([3, 20]),
    ),
    Remedy(
        f"{CHECKS}:demand_arrays",
        "pass arrays: …=[np.asarray(row) for row in …]",
        lambda: by_row(total)([row.tolist() for row in ROWS]),
        lambda: by_row(total)([np.asarray(row.tolist(), np.float32) for row in ROWS]),
        SUMS,
    ),
    Remedy(
        f"{CHECKS}:demand_arrays",
        "convert them: …=[np.asarray(row, …) for row in …]",
        lambda: by_row(total)([ROWS[0], ROWS[1].astype(np.int32), ROWS[2]]),
        lambda: by_row(total)([np.asarray(row, "float32") for row in ROWS]),
        SUMS,
    ),
    Remedy(
        f"{CHECKS}:demand_arrays",
        "leave that row out, here and of all other arguments, or pass an array",
        lambda: by_row(scaled)([ROWS[0], None, ROWS[2]], ROWS),
        lambda: by_row(scaled)([ROWS[0], ROWS[2]], [ROWS[0], ROWS[2]]),
        np.array([np.sum(ROWS[0] ** 2), np.sum(ROWS[2] ** 2)]),
    ),
    Remedy(
        f"{CHECKS}:demand_arrays",
        "pass rows of … axes, as `row.reshape(...)` gives",
        lambda: by_row(total)([ROWS[0], ROWS[1][:, None], ROWS[2]]),
        lambda: by_row(total)([ROWS[0], ROWS[1][:, None].reshape(-1), ROWS[2]]),
        SUMS,
    ),
    Remedy(
        f"{CHECKS}:demand_arrays",
        ".",
        lambda: by_row(total)([ROWS[0], np.ma.array(ROWS[1], mask=ROWS[1] > 2), ROWS[2]]),
        lambda: by_row(total)([ROWS[0], np.ma.array(ROWS[1], mask=ROWS[1] > 2).data, ROWS[2]]),
        SUMS,
    ),
    Remedy(
        f"{CHECKS}:demand_equal",
        "pass as many rows of each",
        lambda: by_row(scaled)(ROWS, ROWS[:2]),
        lambda: by_row(scaled)(ROWS, ROWS),
        np.array([np.sum(row**2) for row in ROWS]),
    ),
    Remedy(
        f"{CHECKS}:refuse_none",
        "leave the call out",
        lambda: by_row(total)([]),
        lambda: None,
    ),
    Remedy(
        "_program/rows/visits.py:_refuse_shared",
        "name it: vmap={…: {..., …: 0}}",
        lambda: by_row(scaled, vmap={"row": {"x": 0}})(ROWS, ROWS),
        lambda: by_row(scaled, vmap={"row": {"x": 0, "w": 0}})(ROWS, ROWS),
        np.array([np.sum(row**2) for row in ROWS]),
    ),
    Remedy(
        "_program/rows/groups.py:RowPadding.refuse",
        "call the function row by row",
        lambda: by_row(spectrum)(ROWS),
        lambda: np.array([optimize(spectrum)(row) for row in ROWS]),
        np.array([np.sum(np.fft.fft(row).real) for row in ROWS]),
        core=True,
    ),
    Remedy(
        "_program/rows/rows_alone.py:_unknown",
        "call the function row by row",
        lambda: by_row(from_three)([ROWS[0][:1]] * 2),
        lambda: np.concatenate([from_three(ROWS[1][1:2])] * 2),
        np.array([2, 2], np.float32),
    ),
    Remedy(
        "_program/rows/ragged.py:_misfit",
        "write jitney.ragged(values, offsets)",
        lambda: jitney.ragged(WHOLE),
        lambda: by_row(total)(jitney.ragged(WHOLE, [0, 3, 8, 17])),
        SUMS,
    ),
    Remedy(
        "_program/rows/ragged.py:PaddedRows.__init__",
        "write PaddedRows(values, {0: lengths})",
        lambda: PaddedRows(PADDED, LENGTHS),
        lambda: by_row(total)(PaddedRows(PADDED, {0: LENGTHS})),
        SUMS,
    ),
    Remedy(
        "_program/rows/block_programs.py:refuse_options",
        "leave it out",
        lambda: by_row(total, donate="x")(ROWS),
        lambda: by_row(total)(ROWS),
        SUMS,
    ),
    Remedy(
        "_program/rows/block_programs.py:devices_of",
        "write shard={",
        lambda: by_row(total, shard={"n": "data"}, mesh=one_device())(ROWS),
        lambda: by_row(total, shard={"row": "data"}, mesh=one_device())(ROWS),
        SUMS,
    ),
    Remedy(
        "_program/rows/block_programs.py:BlockPrograms.program",
        "leave out `shard`",
        lambda: by_row(printed, shard={"row": "data"}, mesh=one_device())(ROWS),
        lambda: by_row(printed)(ROWS),
        SUMS,
    ),
    Remedy(
        "_program/rows/block_programs.py:BlockPrograms._memory_limit",
        "give it memory=…",
        lambda: by_row(pairs, memory=64)(ROWS),
        lambda: by_row(pairs, memory=1 << 20)(ROWS),
        SUMS**2,
    ),
    Remedy(
        f"{COLUMNS}:row_arguments",
        "pass arrays with one axis more than their annotations",
        lambda: by_row(total, chunk={"row": 2})(ROWS[0]),
        lambda: by_row(total, chunk={"row": 2})(np.stack([ROWS[0], ROWS[0]])),
        SUMS[[0, 0]],
    ),
    Remedy(
        "_program/rows/lengths.py:read_lengths",
        "did you mean",
        lambda: by_row(total, pad={"n": "pow2"})(PADDED, lengths={"nn": LENGTHS}),
        lambda: by_row(total, pad={"n": "pow2"})(PADDED, lengths={"n": LENGTHS}),
        SUMS,
    ),
    Remedy(
        "_program/rows/lengths.py:_misfit",
        "where n has the axis of `vmap`",
        lambda: by_row(total)(PADDED, lengths=LENGTHS),
        lambda: by_row(total)(PADDED, lengths={"n": LENGTHS}),
        SUMS,
        core=True,
    ),
    Remedy(
        "_signature/buckets.py:Bucket.__init__",
        "write jitney.Bucket(ladder='auto', count=8)",
        lambda: jitney.Bucket(ladder="pow2", count=8),
        lambda: by_row(total, pad={"n": jitney.Bucket(ladder="auto", count=8)})(ROWS),
        SUMS,
    ),
    Remedy(
        "_signature/options/read.py:",
        'write vmap="row", pad={"points": "pow2"} with it',
        lambda: optimize(total, ragged="padded"),
        lambda: by_row(total, ragged="padded")(ROWS),
        SUMS,
    ),
    Remedy(
        f"{STREAM}:_check_keywords",
        "leave … out",
        lambda: streamed(ROWS, checkpoint="kept"),
        lambda: streamed(ROWS),
        SUMS,
    ),
    Remedy(
        f"{STREAM}:_check_keywords",
        'write chunk={"…": …}',
        lambda: streamed(ROWS, chunk={"n": 2}),
        lambda: streamed(ROWS, chunk={"row": 2}),
        SUMS,
    ),
    Remedy(
        f"{STREAM}:stream_rows",
        "leave the stream out",
        lambda: streamed([]),
        lambda: None,
    ),
    Remedy(
        f"{STREAM}:_chunks",
        "pass as many rows of each",
        lambda: jitney.stream(by_row(scaled), iter([ROWS[:2]]), ROWS, progress=False),
        lambda: jitney.stream(by_row(scaled), iter([ROWS]), ROWS, progress=False).result,
        np.array([np.sum(row**2) for row in ROWS]),
    ),
    Remedy(
        f"{CHECKS}:demand_shared",
        "name what they share",
        lambda: summed()(np.float32(2), ROWS),
        lambda: summed(wrt="w")(np.float32(2), ROWS),
        (2 * SUMS.sum(), SUMS.sum()),
    ),
    Remedy(
        "_stream/accumulate.py:_check",
        "call the function itself for what else it returns",
        lambda: summed(has_aux=True),
        lambda: (summed(wrt="w")(np.float32(2), ROWS), by_row(times)(np.float32(2), ROWS)),
        ((2 * SUMS.sum(), SUMS.sum()), 2 * SUMS),
    ),
    Remedy(
        "_program/rows/block_programs.py:BlockPrograms._refuse_joint_draws",
        "draw with keys of `jax.random.key(seed",
        lambda: by_row(drawn("rbg"))(jax.random.split(jax.random.key(0, impl="rbg"), 3), ROWS),
        lambda: by_row(drawn("fry"))(jax.random.split(jax.random.key(0), 3), ROWS) * 0,
        np.zeros(3, np.float32),
    ),
    Remedy(
        f"{CHECKS}:demand_sizes",
        "change the values alone",
        lambda: by_row(total)(PaddedRows(PADDED, {0: LENGTHS * 2})),
        lambda: by_row(total)(PaddedRows(PADDED * 2, {0: LENGTHS})),
        2 * SUMS,
    ),
    Remedy(
        "_program/rows/results.py:demand_like_results",
        "return the same at each size",
        lambda: by_row(unlike)([ROWS[0], ROWS[0][:0]]),
        lambda: by_row(total)([ROWS[0], ROWS[0][:0]]),
        np.array([3, 0], np.float32),
    ),
    Remedy(
        f"{STREAM}:_chunks",
        "yield lists",
        lambda: jitney.stream(by_row(total), iter([ROWS, 5]), progress=False),
        lambda: jitney.stream(by_row(total), iter([ROWS]), progress=False).result,
        SUMS,
    ),
    Remedy(
        "_export/writing/export.py:_Writer.rows",
        "leave out `sizes`, and pass a row of each bucket",
        lambda: through_a_file(by_row(total), ROWS, sizes={"n": 3}),
        lambda: through_a_file(
            by_row(total), [jax.ShapeDtypeStruct(row.shape, row.dtype) for row in ROWS]
        )(ROWS),
        SUMS,
    ),
    Remedy(
        "_export/writing/export.py:_Writer.rows",
        "write vjp_order=1",
        lambda: through_a_file(by_row(total), ROWS, vjp_order=2),
        lambda: through_a_file(by_row(total), ROWS, vjp_order=1)(ROWS),
        SUMS,
    ),
    Remedy(
        "_export/writing/row_programs.py:RowWriter.parts",
        "export the function, and pass them when it is loaded",
        lambda: through_a_file(by_row(functools.partial(scaled, ROWS)), ROWS),
        lambda: through_a_file(by_row(scaled), ROWS, ROWS)(ROWS, ROWS),
        np.array([np.sum(row**2) for row in ROWS]),
    ),
    Remedy(
        "_export/writing/row_programs.py:RowWriter._demand_alike",
        "return the same at each size",
        lambda: through_a_file(by_row(unlike), [ROWS[0], ROWS[0][:0]]),
        lambda: through_a_file(by_row(total), [ROWS[0], ROWS[0][:0]])([ROWS[0], ROWS[0][:0]]),
        np.array([3, 0], np.float32),
    ),
    Remedy(
        f"{LOADED}._demand_stack",
        "pass a list of rows, also of one",
        lambda: through_a_file(by_row(total), ROWS)(ROWS[0]),
        lambda: through_a_file(by_row(total), ROWS)([ROWS[0]]),
        SUMS[:1],
    ),
    Remedy(
        f"{LOADED}._member",
        "export it with a row of that length too",
        lambda: through_a_file(by_row(counted), [ROWS[0], WHOLE[:5]])([WHOLE[:6]]),
        lambda: through_a_file(by_row(counted), [WHOLE[:6]])([WHOLE[:6]]),
        np.array([WHOLE[:6].sum() / 7]),
    ),
    Remedy(
        f"{LOADED}._refuse",
        "export it with such a row too, an array or a jax.ShapeDtypeStruct",
        lambda: through_a_file(by_row(total), ROWS[:1])(ROWS),
        lambda: through_a_file(by_row(total), ROWS)(ROWS),
        SUMS,
    ),
    Remedy(
        f"{LOADED}._refuse",
        "or cut the row",
        lambda: through_a_file(by_row(total), ROWS[:1])(ROWS),
        lambda: through_a_file(by_row(total), ROWS[:1])([row[:3] for row in ROWS]),
        np.array([3, 3, 3], np.float32),
    ),
    Remedy(
        "_program/rows/block_programs.py:BlockPrograms._refuse_wide",
        'decorate with precision="f64"',
        lambda: by_row(wide)(ROWS),
        lambda: by_row(wide, precision="f64")(ROWS),
        SUMS,
    ),
    Remedy(
        "_program/rows/block_programs.py:BlockPrograms._refuse_wide",
        "or call it inside `with jax.enable_x64(True):`",
        lambda: by_row(wide)(ROWS),
        in_64_bits,
        SUMS,
    ),
    Remedy(
        "_program/rows/visits.py:_refuse_numbers",
        "pass an array: …=np.asarray(…)",
        lambda: by_row(multiplied)(ROWS, [1.0, 2.0, 3.0]),
        lambda: by_row(multiplied)(ROWS, np.asarray([1.0, 2.0, 3.0])),
        SUMS * np.array([1, 2, 3]),
    ),
    Remedy(
        f"{CHECKS}:donated_row",
        "use what that call returned",
        lambda: by_row(total)([donated()[0]]),
        lambda: by_row(total)([donated()[1]]),
        SUMS[:1] * 2,
    ),
    Remedy(
        f"{CHECKS}:donated_row",
        "pass a copy (jnp.copy)",
        lambda: by_row(total)([donated()[0]]),
        lambda: by_row(total)([donated(copies=True)[0]]),
        SUMS[:1],
    ),
    Remedy(
        f"{CHECKS}:donated_row",
        "or take the name out of `donate`",
        lambda: by_row(total)([donated()[0]]),
        lambda: by_row(total)([donated(donate=None)[0]]),
        SUMS[:1],
    ),
]
