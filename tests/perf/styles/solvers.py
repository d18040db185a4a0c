"""In the style of the documentation of diffrax, optimistix and lineax."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import optimistix

from .case import Case, normal


def lotka_volterra(y, args):
    def field(t, y, args):
        a, b, c, d = args
        return jnp.stack([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])

    saveat = diffrax.SaveAt(ts=jnp.linspace(0.0, 10.0, 50))
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 10.0, 0.1, y, args, saveat=saveat
    ).ys


def stiff(y, rates):
    def field(t, y, rates):
        return jnp.stack([-rates[0] * y[0] + y[1], rates[1] * (y[0] - y[1])])

    control = diffrax.PIDController(rtol=1e-4, atol=1e-6)
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Kvaerno3(),
        0.0,
        1.0,
        0.01,
        y,
        rates,
        stepsize_controller=control,
    ).ys


def neural_ode(model, y):
    term = diffrax.ODETerm(lambda t, y, model: model(y))
    return diffrax.diffeqsolve(term, diffrax.Heun(), 0.0, 1.0, 0.05, y, model).ys


def decay_fit(start, t, y):
    def residuals(p, ty):
        return p[0] * jnp.exp(-p[1] * ty[0]) - ty[1]

    return optimistix.least_squares(
        residuals, optimistix.LevenbergMarquardt(1e-4, 1e-4), start, (t, y)
    ).value


def implicit_step(y):
    return optimistix.root_find(
        lambda z, y: z - y - 0.1 * jnp.tanh(z[::-1]), optimistix.Newton(1e-4, 1e-4), y, y
    ).value


def rosenbrock(y):
    def valley(y, _):
        return jnp.sum(100 * (y[1:] - y[:-1] ** 2) ** 2 + (1 - y[:-1]) ** 2)

    return optimistix.minimise(valley, optimistix.BFGS(1e-3, 1e-3), y).value


def dense_solve(matrix, b):
    return lineax.linear_solve(lineax.MatrixLinearOperator(matrix), b, lineax.LU()).value


def conjugate_gradients(factor, b):
    operator = lineax.MatrixLinearOperator(
        factor @ factor.T + 10 * jnp.eye(64), lineax.positive_semidefinite_tag
    )
    return lineax.linear_solve(operator, b, lineax.CG(1e-4, 1e-4)).value


def decay():
    t = jnp.linspace(0.0, 1.0, 50)
    return t, 2 * jnp.exp(-3 * t)


CASES = [
    Case(
        "diffrax",
        lotka_volterra,
        lambda: (jnp.array([10.0, 10.0]), jnp.array([0.1, 0.02, 0.4, 0.02])),
    ),
    Case("diffrax", stiff, lambda: (jnp.array([1.0, 0.0]), jnp.array([100.0, 1.0]))),
    Case(
        "diffrax", neural_ode, lambda: (eqx.nn.MLP(4, 4, 32, 2, key=jax.random.key(0)), normal(4))
    ),
    Case("optimistix", decay_fit, lambda: (jnp.array([1.0, 1.0]), *decay())),
    Case("optimistix", implicit_step, lambda: (normal(10),)),
    Case("optimistix", rosenbrock, lambda: (jnp.zeros(4),)),
    Case("lineax", dense_solve, lambda: (normal(64, 64) + 10 * jnp.eye(64), normal(64))),
    Case("lineax", conjugate_gradients, lambda: (normal(64, 64), normal(64))),
]
