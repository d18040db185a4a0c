"""The stable solution of a linear model by doubling (Chu, Fan, Guo, Hwang and Lin 2011), with proof
that it is the only one.

Solved for today, x' = A x + B f' and f = C x + D f', where f are the variables that are expected.
One turn makes of it the same between dates twice as far apart: D goes to zero, and C to the policy.
Then f = C x + g with g = Phi g', x' = H x + ..., and the pencil of the model has the roots of H and
the inverses of those of Phi. If powers of both shrink there is exactly one stable solution. Where
they do not within rounding, nothing is said: LAPACK judges.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

Matrix = Float[Array, "rows columns"]
Four = tuple[Matrix, Matrix, Matrix, Matrix]
TURNS = 40  # of doubling, and of squaring: 2^40 dates
SMALL = 1e-15  # of what a turn adds, after which the next adds nothing
OFF = 1e-12  # of what equations leave, in units of their terms


def stable(
    F_u: Matrix,
    F_x: Matrix,
    F_u_next: Matrix,
    F_x_next: Matrix,
    ahead: tuple[int, ...],
    unit: float,
) -> tuple[Matrix, Matrix, Bool[Array, ""]]:
    """G, H and whether they are known to be the only stable solution.

    Args:
        F_u: Derivatives by controls of today, and so on.
        F_x: By states.
        F_u_next: By controls of tomorrow.
        F_x_next: By states of tomorrow.
        ahead: The columns of `F_u_next` that are not known to be zero.
        unit: Roots below count as stable.
    """
    nu, nx, places = F_u.shape[1], F_x.shape[1], jnp.array(ahead, int)
    expected = F_u_next[:, places]
    today = jnp.concatenate([F_u, F_x_next], 1)
    solved = -jnp.linalg.solve(today, jnp.concatenate([F_x, expected], 1))
    moved, seen = solved[nu:], solved[places]
    first = (moved[:, :nx], moved[:, nx:], seen[:, :nx], seen[:, nx:])
    C = _limit(first)
    # one more step of the equations themselves takes away what rounding has left
    carried = jnp.concatenate([F_u, F_x_next + expected @ C], 1)
    policy = -jnp.linalg.solve(carried, F_x)
    G, H = policy[:nu], policy[nu:]
    _, B, _, D = first
    one = jnp.eye(len(ahead))
    Phi = jnp.linalg.solve((one - G[places] @ B).T, D.T).T
    sure = _holds(F_u, F_x, expected, F_x_next, G, H, places) & _shrink(H / unit, Phi * unit)
    return G, H, sure


def _limit(first: Four) -> Matrix:
    """The policy of expected variables."""
    one = jnp.eye(first[3].shape[0])
    if not one.size:
        return first[2]

    def goes_on(state: tuple[Four, Array, Array]) -> Array:
        _, added, turn = state
        return (added > SMALL) & (turn < TURNS)  # of NaN neither

    def double(state: tuple[Four, Array, Array]) -> tuple[Four, Array, Array]:
        (A, B, C, D), _, turn = state
        sides = jnp.concatenate([C @ A, D], 1)
        both = jnp.linalg.solve(one - C @ B, sides)
        by_x, by_f = both[:, : A.shape[1]], both[:, A.shape[1] :]
        more = D @ by_x
        added = jnp.max(jnp.abs(more), initial=0.0) / jnp.max(jnp.abs(C), initial=1e-300)
        found = (A @ (A + B @ by_x), B + A @ (B @ by_f), C + more, D @ by_f)
        return found, added, turn + 1

    begun = (first, jnp.ones(()), jnp.zeros((), jnp.int32))
    return lax.while_loop(goes_on, double, begun)[0][2]


def _holds(
    F_u: Matrix,
    F_x: Matrix,
    expected: Matrix,
    F_x_next: Matrix,
    G: Matrix,
    H: Matrix,
    places: Array,
) -> Bool[Array, ""]:
    """Return whether the equations hold."""
    terms = [F_u @ G, F_x, expected @ (G[places] @ H), F_x_next @ H]
    left = jnp.max(jnp.abs(sum(terms)), initial=0.0)
    size = jnp.max(jnp.stack([jnp.max(jnp.abs(term), initial=0.0) for term in terms]))
    return left <= OFF * size


def _shrink(*given: Matrix) -> Bool[Array, ""]:
    """Return whether some power of each matrix is less than one, so that all its roots are."""

    def large(matrix: Matrix) -> Array:
        return jnp.max(jnp.sum(jnp.abs(matrix), 1), initial=0.0)

    def goes_on(state: tuple[tuple[Matrix, ...], Array]) -> Array:
        powers, turn = state
        sizes = jnp.stack([large(power) for power in powers])
        return jnp.any(sizes >= 1.0) & jnp.all(sizes < 1e100) & (turn < TURNS)

    def square(state: tuple[tuple[Matrix, ...], Array]) -> tuple[tuple[Matrix, ...], Array]:
        powers, turn = state
        return tuple(power @ power for power in powers), turn + 1

    powers, _ = lax.while_loop(goes_on, square, (given, jnp.zeros((), jnp.int32)))
    return jnp.all(jnp.stack([large(power) for power in powers]) < 1.0)
