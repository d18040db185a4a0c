"""What the sides by hand share, as one writes it once for a project: rows in buckets of powers of
two, and in blocks of a fixed number of rows, so that another mixture of lengths compiles nothing.
"""

from collections.abc import Iterator, Sequence

import numpy as np

Column = Sequence[np.ndarray]


def blocks(
    columns: Sequence[Column], axes: Sequence[int] | None = None, most: int = 64
) -> Iterator[tuple[np.ndarray, int, list[np.ndarray]]]:
    """Rows of one bucket, at most so many at a time.

    Args:
        columns: The arguments that have an array for each row.
        axes: For each of them, which of the sizes of a row its first axis has; all have one by
            default.
        most: How many rows a block has. The last one of a bucket repeats its last row.
    Yields:
        Numbers of the rows, (most,), and how many of these are not repeated; then their arrays,
        (most, bucket, ...) for each argument, with zeros behind each row, and their sizes, (most,)
        for each axis.
    """
    axes = [0] * len(columns) if axes is None else axes
    leading = [columns[axes.index(axis)] for axis in range(max(axes) + 1)]
    by_bucket: dict[tuple[int, ...], list[int]] = {}
    for row, sizes in enumerate(zip(*(map(len, column) for column in leading), strict=True)):
        key = tuple(1 << max(size - 1, 0).bit_length() for size in sizes)
        by_bucket.setdefault(key, []).append(row)
    for bucket, rows in by_bucket.items():
        for begin in range(0, len(rows), most):
            own = rows[begin : begin + most]
            given = [*own, *own[-1:] * (most - len(own))]
            arrays = [
                filled([column[row] for row in given], bucket[axis])
                for column, axis in zip(columns, axes, strict=True)
            ]
            sizes = [np.array([len(column[row]) for row in given], np.int32) for column in leading]
            yield np.array(given), len(own), [*arrays, *sizes]


def filled(rows: Column, length: int) -> np.ndarray:
    """One array of all rows, with zeros behind each."""
    out = np.zeros((len(rows), length, *rows[0].shape[1:]), rows[0].dtype)
    for place, row in zip(out, rows, strict=True):
        place[: len(row)] = row
    return out


def in_order(count: int, parts: Sequence[tuple[np.ndarray, object]]) -> np.ndarray:
    """One array of results, in the order of the rows, of (numbers of rows, results)."""
    first = np.asarray(parts[0][1])
    out = np.empty((count, *first.shape[1:]), first.dtype)
    for rows, results in parts:
        out[rows] = results
    return out


def in_order_cut(lengths: Sequence[int], parts: Sequence[tuple[np.ndarray, object]]) -> Column:
    """The same of results along the axis, each cut to the length of its row."""
    out: list[np.ndarray] = [np.empty(0)] * len(lengths)
    for rows, results in parts:
        for row, result in zip(rows.tolist(), np.asarray(results), strict=True):
            out[row] = result[: lengths[row]]
    return out
