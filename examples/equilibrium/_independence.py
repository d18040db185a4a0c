"""Whether equations can determine their unknowns, and which of them cannot.

From the places of derivatives alone: a matching of equations with unknowns, each with one that it
contains, is as large as there are unknowns, or some equations share fewer unknowns than they are
(Dulmage and Mendelsohn 1958). From the derivatives: the vectors that a singular Jacobian sends to
zero say which equations repeat one another, and which unknowns nothing ties down.
"""

from collections.abc import Sequence

import numpy as np

# a singular value below this part of the largest, rows and columns scaled to one, is zero but for
# rounding
RANK = 1e-13
# a condition number below this, which is quicker to have than singular values, leaves no doubt
REGULAR = 1e9
WEIGHT = 1e-3  # a part of a null vector below this is rounding


def unmatched(places: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> str | None:
    """Equations that share too few unknowns, or unknowns that too few equations share; nothing
    where each has one of its own.
    """
    unread = [columns[j] for j in np.flatnonzero(~np.any(places, 0))]
    if unread:
        return f"{listed(unread)} {'is' if len(unread) == 1 else 'are'} in none of the equations"
    found = _short(places, rows, columns)
    if found is None:
        return None
    equations, unknowns = found
    if not unknowns:
        return f"{listed(equations)} contains no unknown"
    return f"{len(equations)} equations, {listed(equations)}, contain only {listed(unknowns)}"


def _short(
    places: np.ndarray, rows: Sequence[str], columns: Sequence[str]
) -> tuple[list[str], list[str]] | None:
    """Rows without enough columns: those that an alternating way reaches from a row that is left
    over, and their columns.
    """
    partner = np.full(len(columns), -1)
    for row in range(len(rows)):
        reached: set[int] = set()
        if not _placed(places, row, partner, reached):
            sharing = [row, *(int(partner[column]) for column in sorted(reached))]
            return [rows[i] for i in sorted(sharing)], [columns[j] for j in sorted(reached)]
    return None


def _placed(places: np.ndarray, row: int, partner: np.ndarray, reached: set[int]) -> bool:
    """Find a column for a row, moving other rows where that helps; `reached` are the columns that
    were tried.
    """
    way: list[tuple[int, list[int]]] = [(row, np.flatnonzero(places[row]).tolist())]
    taken: list[int] = []
    while way:
        column = next((column for column in way[-1][1] if column not in reached), None)
        if column is None:
            way.pop()
            if taken:
                taken.pop()
            continue
        reached.add(column)
        taken.append(column)
        if partner[column] < 0:
            for (each, _), own in zip(way, taken, strict=True):
                partner[own] = each
            return True
        way.append((int(partner[column]), np.flatnonzero(places[partner[column]]).tolist()))
    return False


def dependent(jacobian: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> str | None:
    """Which equations repeat one another at a point, and which unknowns they leave open; nothing
    where the Jacobian is regular.
    """
    if not jacobian.size or not np.all(np.isfinite(jacobian)):
        return None
    still = [columns[j] for j in np.flatnonzero(~np.any(jacobian, 0))]
    if still:
        return f"no equation changes there with {listed(still)}"
    scaled, by_row, by_column = _scaled(jacobian)
    if np.linalg.cond(scaled, 1) < REGULAR:
        return None
    left, sizes, right = np.linalg.svd(scaled)
    if sizes[-1] > RANK * sizes[0]:
        return None
    count = int(np.sum(sizes <= RANK * sizes[0]))
    equations = [rows[i] for i in _heavy(left.T[-count:] / by_row)]
    unknowns = [columns[j] for j in _heavy(right[-count:] / by_column)]
    repeat = (
        "are not independent and leave"
        if len(equations) > 1
        else "has no derivative there and leaves"
    )
    return f"{listed(equations)} {repeat} {listed(unknowns)} open"


def singular(jacobian: np.ndarray) -> bool:
    """Whether a finite Jacobian sends a vector to zero, but for rounding."""
    if not jacobian.size or not np.all(np.isfinite(jacobian)):
        return False
    sizes = np.linalg.svd(_scaled(jacobian)[0], compute_uv=False)
    return bool(sizes[-1] <= RANK * sizes[0])


def _scaled(jacobian: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = np.max(np.abs(jacobian), 1)
    rows = np.where(rows > 0.0, rows, 1.0)
    columns = np.max(np.abs(jacobian / rows[:, None]), 0)
    columns = np.where(columns > 0.0, columns, 1.0)
    return jacobian / rows[:, None] / columns, rows, columns


def _heavy(vectors: np.ndarray) -> np.ndarray:
    weights = np.max(np.abs(vectors) / np.max(np.abs(vectors), 1, keepdims=True), 0)
    return np.flatnonzero(weights > WEIGHT)


def listed(names: Sequence[str]) -> str:
    """Names in a sentence."""
    few = [repr(name) for name in names[:6]] + (
        [f"{len(names) - 6} more"] if len(names) > 6 else []
    )
    return few[0] if len(few) == 1 else f"{', '.join(few[:-1])} and {few[-1]}"
