"""Rows of unlike lengths: a list of rows under `vmap` and `pad`, beside `jax.jit` of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np

from jitney import load, optimize, ragged
from jitney._program.rows import blocks, lots
from jitney.errors import AxisError, ExportError

from ._options import Arrays, Option, Way
from ._program import Program
from ._sizes import pick

Axes = Mapping[str, tuple[str, ...]]


def rows(rng: Any, fn: Any, program: Program, n: int) -> Way | None:
    """Some rows as long as the case, and shorter ones; also in one array, and their gradient."""
    blocks.blank, blocks.FEW, lots.RUNGS = blank, 2, (4, 2, 1)
    # What stands behind a row of one array is the next row, or what no program looks at.
    blocks.fill_windows = (WINDOWS, _copied)[int(rng.integers(2))]
    axes = {name: tuple(text.split()) for name, text in program.takes}
    if any("n" in size and size != "n" for each in axes.values() for size in each):
        return None
    own = [name for name, each in axes.items() if "n" in each]
    if not own or n < 3:
        return None
    lengths = [
        int(k) for k in rng.integers(2, n + 1, int(pick(rng, (1, 3, 9)) if n < 5_000 else 1))
    ] + [n]
    bucket = ("pow2", "aligned", [n], [4, 2 * n], "auto")[int(rng.integers(5))]
    in_one = [
        name
        for name in own
        if axes[name][0] == "n" and axes[name].count("n") == 1 and rng.random() < 0.3
    ]
    # All rows in padded arrays, whose lengths the call has.
    is_stacked = rng.random() < 0.2
    others: dict[str, Any] = {"ragged": ("list", "padded")[int(rng.integers(2))]}
    if rng.random() < 0.2:
        others |= {"chunk": {"row": int(rng.integers(1, 4))}}
    elif rng.random() < 0.1:
        others |= {"memory": "1MiB"}
    made = optimize(vmap={"row": dict.fromkeys(own, 0)}, pad={"n": bucket}, **others)(fn)
    theirs = jax.jit(fn)

    def given(arrays: Arrays) -> Arrays:
        if is_stacked:
            stacked = {
                name: _in_padded_array(x, axes[name]) if name in own else x
                for name, x in arrays.items()
            }
            return {**stacked, "lengths": {"n": lengths}}
        return {name: _in_one_array(x) if name in in_one else x for name, x in arrays.items()}

    def by_rows(arrays: Arrays) -> Any:
        return by_result(
            theirs(**{name: x[i] if name in own else x for name, x in arrays.items()})
            for i in range(len(lengths))
        )

    def batched(arrays: Arrays) -> Any:
        """Each row beside a copy of itself: XLA does not multiply all zeros behind one array by the
        infinities of a kernel, and does so behind two.
        """
        over = {name: 0 if name in own else None for name in arrays}
        twice = jax.vmap(lambda given: fn(**given), in_axes=(over,))
        pairs = (
            twice({name: np.stack([x[i]] * 2) if name in own else x for name, x in arrays.items()})
            for i in range(len(lengths))
        )
        return by_result(jax.tree.map(lambda x: x[0], pair) for pair in pairs)

    is_exported = rng.random() < 0.2
    # One file serves all calls: these rows, and the same ones moved by rounding.
    files: list[Any] = []

    def called(arrays: Arrays) -> Any:
        if is_exported and not files:
            files.append(_saved(made, arrays))
        run = files[0] if is_exported else made
        return run(**given(arrays))

    def ours(arrays: Arrays) -> Any:
        out = called(arrays)
        first = {name: x[0] if name in own else x for name, x in arrays.items()}
        # Its form alone: a program would be compiled for it.
        structure = jax.tree.structure(jax.eval_shape(fn, **first))
        leaves = structure.flatten_up_to(out)
        return by_result(
            structure.unflatten([leaf[i] for leaf in leaves]) for i in range(len(lengths))
        )

    def by_result(outs: Iterable[Any]) -> Any:
        """Of each result all rows, as programs that run together are taken apart."""
        return [*outs] if program.bare else tuple(zip(*outs, strict=True))

    def refusal(arrays: Arrays) -> str | None:
        try:
            called(arrays)
        except (AxisError, ExportError) as error:
            return str(error).splitlines()[0]
        except NotImplementedError as error:
            # Operations that JAX itself cannot map.
            return str(error) if "Batching rule" in str(error) else None
        return None

    return Way(
        ours,
        by_rows,
        f'optimize(vmap={{"row": {dict.fromkeys(own, 0)!r}}}, pad={{"n": {bucket!r}}}, **{others!r})'
        f" of rows of {lengths}, in one array {in_one}{', in padded arrays' * is_stacked}"
        f"{', from a file' * is_exported}",
        refusal,
        f"rows {lengths}",
        "close",
        partial(_cut, axes=axes, own=own, lengths=lengths),
        batched=batched,
    )


def _saved(made: Any, arrays: Arrays) -> Any:
    """What a file has of a function, that was exported with these rows."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "f.jitney"
        made.export(path, **arrays)
        return load(path)


BEHIND = {"f": np.nan, "c": np.nan, "V": np.nan, "b": True}


WINDOWS = blocks.fill_windows


def blank(out: Any) -> None:
    """What programs never look at is no number, or a large one."""
    out[...] = np.asarray(BEHIND.get(out.dtype.kind, 3)).astype(out.dtype)


def _copied(out: Any, values: Any, starts: Any, lengths: Any) -> None:
    blank(out)
    for place, start, length in zip(out, starts, lengths, strict=True):
        place[:length] = values[start : start + length]


def _cut(arrays: Arrays, axes: Axes, own: list[str], lengths: list[int]) -> Arrays:
    """Rows of these lengths, the others turned, so that no two are the same."""
    made = dict(arrays)
    for name in own:
        x = arrays[name]
        if name in arrays:
            made[name] = [
                np.roll(x, k)[
                    tuple(slice(m) if size == "n" else slice(None) for size in axes[name])
                ]
                for k, m in enumerate(lengths)
            ]
    return made


def _in_padded_array(rows: list[Any], axes: tuple[str, ...]) -> Any:
    """One array, with what no program looks at behind each row."""
    longest = max(max(x.shape, default=0) for x in rows)
    shape = tuple(
        longest + 1 if axis == "n" else k for axis, k in zip(axes, rows[0].shape, strict=True)
    )
    out = np.empty((len(rows), *shape), np.asarray(rows[0]).dtype)
    blank(out)
    for place, row in zip(out, rows, strict=True):
        place[tuple(map(slice, row.shape))] = row
    return out


def _in_one_array(rows: list[Any]) -> Any:
    offsets = np.cumsum([0, *map(len, rows)])
    return ragged(np.concatenate(rows), offsets)


OPTIONS: dict[str, Option] = {"rows": Option(rows, 1.0)}
