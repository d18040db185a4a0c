"""The same workflow as most of us would write it first: a jitted function and a jitted `jax.jacfwd`
for each argument, loops in NumPy.

It is what the README's table calls "before". The equations are the same; what is around them is
not.
"""

from typing import Any

import jax
import numpy as np

from ._model import NAMES, Model
from ._variables import joined

STEADY = ("theta", "u", "x", "u_next", "x_next")
MOVING = ("u", "x", "u_next", "x_next")


class Before:
    """One model."""

    def __init__(self, model: Model):
        self.model, self.traces = model, 0

        def residual(*place: Any) -> Any:
            self.traces += 1
            return joined(jax.tree.leaves(model._residuals(*place)))

        periods = (None, 0, 0, 0, 0, 0, 0)
        jacobians = {name: jax.jacfwd(residual, i) for i, name in enumerate(NAMES)}
        self.value = jax.jit(residual)
        self.by = {name: jax.jit(jacobian) for name, jacobian in jacobians.items()}
        self.values = jax.jit(jax.vmap(residual, periods))
        self.each_by = {name: jax.jit(jax.vmap(jacobians[name], periods)) for name in MOVING}

    def steady(
        self, theta: np.ndarray, free: np.ndarray, pick: np.ndarray, target: float
    ) -> tuple[np.ndarray, ...]:
        """Newton's method; with `pick`, the parameters move along `free` until `pick @ (u, x) =
        target`.
        """
        (u, x), z, tau = self.model.guess, np.zeros(self.model.sizes["z"]), 0.0
        calibrates, nu = bool(np.any(pick)), self.model.sizes["u"]
        for _ in range(50):
            place = (theta + tau * free, u, x, z, u, x, z)
            F, by = self.at(place, STEADY if calibrates else STEADY[1:])
            J, v = (
                np.hstack([by["u"] + by["u_next"], by["x"] + by["x_next"]]),
                np.concatenate([u, x]),
            )
            if calibrates:
                J = np.block([[(by["theta"] @ free)[:, None], J], [np.zeros((1, 1)), pick[None]]])
                F = np.append(F, pick @ v - target)
            step = -np.linalg.solve(J, F)
            size = 1.0
            while size > 1e-9 and not self._smaller(
                theta, free, tau, v, step, size, F, pick, target
            ):
                size /= 2
            if calibrates:
                tau, step = tau + size * step[0], step[1:]
            u, x = np.split(v + size * step, [nu])
            if np.max(np.abs(step)) < 1e-12:
                break
        return theta + tau * free, u, x

    def _smaller(
        self,
        theta: Any,
        free: Any,
        tau: float,
        v: Any,
        step: Any,
        size: float,
        F: Any,
        pick: Any,
        target: float,
    ) -> bool:
        if np.any(pick):
            tau, step = tau + size * step[0], step[1:]
        w = v + size * step
        u, x = np.split(w, [self.model.sizes["u"]])
        z = np.zeros(self.model.sizes["z"])
        G, _ = self.at((theta + tau * free, u, x, z, u, x, z), ())
        G = np.append(G, pick @ w - target) if np.any(pick) else G
        return bool(np.linalg.norm(G) <= (1 - 1e-4 * size) * np.linalg.norm(F)) or bool(
            np.max(np.abs(step)) < 1e-7
        )

    def at(self, place: Any, names: tuple[str, ...]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Residuals and Jacobian blocks at one place."""
        by = {name: np.asarray(self.by[name](*place)) for name in names}
        return np.asarray(self.value(*place)), by

    def at_each(self, place: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The same at many, by what moves along a path."""
        by = {name: np.asarray(self.each_by[name](*place)) for name in MOVING}
        return np.asarray(self.values(*place)), by

    def blocks(self, theta: np.ndarray, u: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """Jacobian blocks at a steady state."""
        z = np.zeros(self.model.sizes["z"])
        return self.at((theta, u, x, z, u, x, z), NAMES[1:])[1]

    def path(
        self,
        theta: Any,
        x0: Any,
        z: Any,
        u: Any,
        x: Any,
        G_last: Any,
        star: tuple[Any, Any],
        G_z: Any,
    ) -> tuple[Any, Any]:
        """Newton's method on all periods; the linear systems a period at a time, from the last one
        backward.
        """
        u_star, x_star = star
        nu, nx = G_last.shape
        for _ in range(50):
            u_last = u_star + G_last @ (x[-1] - x_star) + G_z @ z[-1]
            place = (
                theta,
                u,
                np.vstack([x0, x[:-1]]),
                z[:-1],
                np.vstack([u[1:], u_last]),
                x,
                z[1:],
            )
            F, by = self.at_each(place)
            G, g, solved = G_last, np.zeros(nu), np.empty((*F.shape, nx + 1))
            for t in range(F.shape[0] - 1, -1, -1):
                left = np.hstack([by["u"][t], by["x_next"][t] + by["u_next"][t] @ G])
                right = np.hstack([by["x"][t], (F[t] + by["u_next"][t] @ g)[:, None]])
                solved[t] = -np.linalg.solve(left, right)
                G, g = solved[t, :nu, :nx], solved[t, :nu, nx]
            dx, largest = np.zeros(nx), 0.0
            for t in range(F.shape[0]):
                moved = solved[t, :, :nx] @ dx + solved[t, :, nx]
                u[t], x[t], dx = u[t] + moved[:nu], x[t] + moved[nu:], moved[nu:]
                largest = max(largest, float(np.max(np.abs(moved))))
            if largest < 1e-8:
                break
        return u, x
