"""Bounds: the scaling of Coleman and Li, and the choice among three strictly feasible steps.

Branch, Coleman and Li, "A subspace, interior, and conjugate gradient method for large-scale
bound-constrained minimization problems", SIAM J. Sci. Comput. 21 (1999). Steps, gradients and
triangles with a hat live in parameters divided by `d`. The model of the cost there is q(s) = 0.5 |R
s|^2 + g.s, whose triangle R holds the Jacobian and the curvature that the bounds add.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ._few import times
from ._qr import product, triangularise

Scalar = Float[Array, ""]
Vector = Float[Array, "k"]
Matrix = Float[Array, "k k"]


class Bounds(eqx.Module):
    """Box of the feasible parameters; infinite where there is no bound."""

    lower: Vector
    upper: Vector


class Hat(eqx.Module):
    """The local model in scaled parameters."""

    d: Vector
    g: Vector
    R: Matrix
    c: Vector
    few: bool = eqx.field(static=True, default=False)  # see `Setup.few`

    def times(self, s: Vector) -> Vector:
        """R s."""
        return times(self.R, s) if self.few else product(self.R, s)


class Step(eqx.Module):
    """A step in scaled parameters and the model's change of the cost."""

    s: Vector
    value: Scalar


def distance(x: Vector, g: Vector, bounds: Bounds) -> tuple[Vector, Vector]:
    """Distance v to the bound that the descent direction -g points to (1 where there is none), and
    dv / dx.
    """
    to_upper = (g < 0) & jnp.isfinite(bounds.upper)
    to_lower = (g > 0) & jnp.isfinite(bounds.lower)
    v = jnp.where(to_upper, bounds.upper - x, jnp.where(to_lower, x - bounds.lower, 1.0))
    return v, jnp.where(to_upper, -1.0, jnp.where(to_lower, 1.0, 0.0))


def rescaled(v: Vector, dv: Vector, scale: Vector) -> Vector:
    """The same distance, measured in units of `scale`."""
    return jnp.where(dv != 0, v / scale, v)


def hat(
    x: Vector, g: Vector, R: Matrix, c: Vector, scale: Vector, bounds: Bounds, few: bool = False
) -> Hat:
    """Scale the local model by `scale` and by the root of the distances, and add the curvature
    diag(g dv scale).
    """
    v, dv = distance(x, g, bounds)
    d = jnp.sqrt(rescaled(v, dv, scale)) * scale
    curvature = jnp.diag(jnp.sqrt(g * dv * scale))  # g and dv have the same sign
    triangle = triangularise(
        jnp.concatenate([R * d, curvature]).T, jnp.concatenate([c, jnp.zeros_like(c)])
    )
    return Hat(d, d * g, triangle[:, :-1], triangle[:, -1], few)


def stride_to_bounds(x: Vector, s: Vector, bounds: Bounds) -> tuple[Scalar, Bool[Array, "k"]]:
    """How many steps `s` lead to the first bound, and which parameters reach theirs there."""
    moves = s != 0
    safe = jnp.where(moves, s, 1.0)
    strides = jnp.where(
        moves, jnp.maximum((bounds.lower - x) / safe, (bounds.upper - x) / safe), jnp.inf
    )
    nearest = jnp.min(strides)
    return nearest, moves & (strides == nearest)


def stride_to_sphere(start: Vector, s: Vector, radius: Scalar) -> Scalar:
    """How many steps `s` lead from inside a sphere to its surface; the roots as in Numerical
    Recipes, without cancellation.
    """
    a, b = s @ s, start @ s
    c = jnp.minimum(start @ start - radius**2, 0.0)
    q = -(b + jnp.copysign(jnp.sqrt(b * b - a * c), b))
    return jnp.maximum(q / a, c / q)


def along(hat: Hat, s: Vector, low: Scalar, high: Scalar, start: Vector | None = None) -> Step:
    """Minimise the model over start + t s with low <= t <= high; the value is inf where low >
    high.
    """
    Rs = hat.times(s)
    a, b, offset = 0.5 * (Rs @ Rs), hat.g @ s, jnp.zeros(())
    if start is not None:
        Rstart = hat.times(start)
        b = b + Rstart @ Rs
        offset = 0.5 * (Rstart @ Rstart) + hat.g @ start
    best = jnp.where(a > 0, -0.5 * b / jnp.where(a > 0, a, 1.0), low)
    ts = jnp.stack([low, high, jnp.clip(best, low, high)])
    values = ts * (a * ts + b) + offset
    least = jnp.min(values)
    # Not by `argmin`: JAX lowers it outside of our scope, to float32, where an outer `jax.jit` runs
    # with the global flag off.
    t = jnp.where(values[0] == least, ts[0], jnp.where(values[1] == least, ts[1], ts[2]))
    moved = t * s if start is None else start + t * s
    return Step(moved, jnp.where(low > high, jnp.inf, least))


def model_value(hat: Hat, s: Vector) -> Scalar:
    """Change of the cost that the model predicts for a step."""
    Rs = hat.times(s)
    if Rs.size == s.size:  # by one sum, since XLA compiles a kernel for each
        return jnp.sum(0.5 * Rs**2 + hat.g * s)
    return 0.5 * (Rs @ Rs) + hat.g @ s


def choose_step(
    x: Vector, hat: Hat, p: Vector, radius: Scalar, theta: Scalar, bounds: Bounds
) -> Step:
    """Take the trust-region step if it is feasible, else the best of it cut short, its reflection
    and the scaled gradient.

    Args:
        x: The point, strictly inside.
        hat: The model there.
        p: Solution of the trust-region subproblem, scaled.
        radius: Radius of the region.
        theta: Fraction of the way to a bound that a step may go.
        bounds: The box.
    """
    target = x + hat.d * p
    feasible = jnp.all((target >= bounds.lower) & (target <= bounds.upper))

    def whole() -> Step:
        return Step(p, model_value(hat, p))

    def restricted() -> Step:
        stride, hits = stride_to_bounds(x, hat.d * p, bounds)
        cut = theta * stride * p
        candidates = [
            Step(cut, model_value(hat, cut)),
            _reflected(x, hat, stride * p, jnp.where(hits, -p, p), stride, radius, theta, bounds),
            _gradient(x, hat, radius, theta, bounds),
        ]
        # The gradient wins ties, as the paper's convergence proof rests on it.
        values = jnp.stack([step.value for step in candidates])
        cut_wins = (values[0] < values[1]) & (values[0] < values[2])
        reflection_wins = (values[1] < values[0]) & (values[1] < values[2])
        i = jnp.where(cut_wins, 0, jnp.where(reflection_wins, 1, 2))
        return Step(jnp.stack([step.s for step in candidates])[i], values[i])

    return lax.cond(feasible, whole, restricted)


def _reflected(
    x: Vector,
    hat: Hat,
    hit: Vector,
    r: Vector,
    stride: Scalar,
    radius: Scalar,
    theta: Scalar,
    bounds: Bounds,
) -> Step:
    """Go to the bound (`hit`) and on along the reflected direction `r`, keeping off bounds and
    inside the region.
    """
    to_sphere = stride_to_sphere(hit, r, radius)
    to_bound, _ = stride_to_bounds(x + hat.d * hit, hat.d * r, bounds)
    length = jnp.minimum(to_bound, to_sphere)
    possible = length > 0
    low = jnp.where(possible, (1 - theta) * stride / jnp.where(possible, length, 1.0), 0.0)
    high = jnp.where(possible, jnp.where(length == to_bound, theta * to_bound, to_sphere), -1.0)
    return along(hat, r, low, high, start=hit)


def _gradient(x: Vector, hat: Hat, radius: Scalar, theta: Scalar, bounds: Bounds) -> Step:
    """Minimise along the scaled steepest descent."""
    downhill = -hat.g
    to_sphere = radius / jnp.linalg.norm(downhill)
    to_bound, _ = stride_to_bounds(x, hat.d * downhill, bounds)
    high = jnp.where(to_bound < to_sphere, theta * to_bound, to_sphere)
    return along(hat, downhill, jnp.zeros(()), high)


def active(x: Vector, bounds: Bounds, rtol: Scalar | float) -> Int[Array, "k"]:
    """Tell which bounds hold x: -1 lower, 1 upper, 0 none, within `rtol` of the bound's size (at
    least of 1).
    """
    above, below = x - bounds.lower, bounds.upper - x
    low = jnp.isfinite(bounds.lower) & (
        above <= jnp.minimum(below, rtol * jnp.maximum(1.0, jnp.abs(bounds.lower)))
    )
    high = jnp.isfinite(bounds.upper) & (
        below <= jnp.minimum(above, rtol * jnp.maximum(1.0, jnp.abs(bounds.upper)))
    )
    return jnp.where(high, 1, jnp.where(low, -1, 0))


def off_bounds(x: Vector, bounds: Bounds, rstep: float) -> Vector:
    """Move x at least `rstep` of their size off its bounds; to the middle where the box is too thin
    for that.
    """
    low = bounds.lower + rstep * jnp.maximum(1.0, jnp.abs(bounds.lower))
    high = bounds.upper - rstep * jnp.maximum(1.0, jnp.abs(bounds.upper))
    return _moved(x, active(x, bounds, rstep), low, high, bounds)


def strictly_inside(x: Vector, bounds: Bounds) -> Vector:
    """Move x one rounding unit inside a bound that it reached or, by rounding, passed."""
    holds = jnp.where(x >= bounds.upper, 1, jnp.where(x <= bounds.lower, -1, 0))
    low, high = jnp.nextafter(bounds.lower, bounds.upper), jnp.nextafter(bounds.upper, bounds.lower)
    return _moved(x, holds, low, high, bounds)


def _moved(x: Vector, holds: Int[Array, "k"], low: Vector, high: Vector, bounds: Bounds) -> Vector:
    moved = jnp.where(holds == -1, low, jnp.where(holds == 1, high, x))
    outside = (moved < bounds.lower) | (moved > bounds.upper)
    return jnp.where(outside, 0.5 * (bounds.lower + bounds.upper), moved)
