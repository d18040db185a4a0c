"""The likelihood of Smets and Wouters (2007) as one writes it for this model, without this package:
equations as a function of vectors, a policy by cyclic reduction, and the filter with its adjoint of
`likelihood_by_hand.py`. Nothing looks whether there is one stable solution.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .likelihood_by_hand import kalman

Matrix = Float[Array, "rows columns"]
Vector = Float[Array, "size"]
REAL = ("y", "c", "i", "q", "ks", "z", "k", "rk", "l", "w", "real")
OWN = ("pi", "r", "a", "b", "g", "qs", "ms", "sp", "sw", "ep", "ew")
NAMES = (*REAL, *(f"{name}_f" for name in REAL), *OWN)
SHOCKS = ("a", "b", "g", "i", "r", "p", "w")
TURNS = 9
SIZE = len(NAMES)


def coefficients(p: dict[str, Array]) -> dict[str, Array]:
    """What equations read, with the steady state in it."""
    growth = 1.0 + p["gamma_bar"] / 100.0
    discount = growth ** -p["sigma_c"] / (1.0 + p["beta_bar"] / 100.0)
    ahead, h, al = discount * growth, p["habit"] / growth, p["alpha"]
    rent = 1.0 / discount - 1.0 + p["delta"]
    wage = (al**al * (1.0 - al) ** (1.0 - al) / (p["Phi"] * rent**al)) ** (1.0 / (1.0 - al))
    k_y = p["Phi"] * ((1.0 - al) / al * rent / wage) ** (al - 1.0)
    i_y, k1 = (growth - 1.0 + p["delta"]) * k_y, (1.0 - p["delta"]) / growth
    c_y = 1.0 - p["share_g"] - i_y
    wl_c = (1.0 - al) / al * rent * k_y / (p["phi_w"] * c_y)
    curve = growth**2 * p["phi"]
    prices = (1.0 - ahead * p["xi_p"]) * (1.0 - p["xi_p"]) / p["xi_p"]
    wages = (1.0 - ahead * p["xi_w"]) * (1.0 - p["xi_w"]) / p["xi_w"]
    return {
        "rate": 100.0 * ((1.0 + p["pi_bar"] / 100.0) / discount - 1.0),
        "ahead": ahead,
        "h": h,
        "c_y": c_y,
        "i_y": i_y,
        "z_y": rent * k_y,
        "c1": h / (1.0 + h),
        "c2": (p["sigma_c"] - 1.0) * wl_c / (p["sigma_c"] * (1.0 + h)),
        "c3": (1.0 - h) / (p["sigma_c"] * (1.0 + h)),
        "i1": 1.0 / (1.0 + ahead),
        "i2": 1.0 / ((1.0 + ahead) * curve),
        "q1": (1.0 - p["delta"]) * discount,
        "z1": (1.0 - p["psi"]) / p["psi"],
        "k1": k1,
        "k2": (1.0 - k1) * curve,
        "pi0": 1.0 / (1.0 + ahead * p["iota_p"]),
        "pi3": prices / ((p["Phi"] - 1.0) * p["eps_p"] + 1.0),
        "w4": wages / ((1.0 + ahead) * ((p["phi_w"] - 1.0) * p["eps_w"] + 1.0)),
    }


def residuals(
    p: dict[str, Array], k: dict[str, Array], last: Vector, now: Vector, then: Vector, e: Vector
) -> Vector:
    """Equations at three dates."""
    m, n, t = (dict(zip(NAMES, each, strict=True)) for each in (last, now, then))
    al, out = p["alpha"], []
    for f in ("", "_f"):
        y, c, i, q, ks, z, cap, rk, l, w, real = (n[name + f] for name in REAL)
        spent = k["c_y"] * c + k["i_y"] * i + k["z_y"] * z + n["g"]
        eaten = k["c1"] * m["c" + f] + (1.0 - k["c1"]) * t["c" + f]
        eaten += k["c2"] * (l - t["l" + f]) - k["c3"] * real + n["b"]
        built = k["i1"] * m["i" + f] + (1.0 - k["i1"]) * t["i" + f] + k["i2"] * q + n["qs"]
        priced = k["q1"] * t["q" + f] + (1.0 - k["q1"]) * t["rk" + f] - real + n["b"] / k["c3"]
        kept = k["k1"] * m["k" + f] + (1.0 - k["k1"]) * i + k["k2"] * n["qs"]
        out += [y - spent, c - eaten, i - built, q - priced, cap - kept, ks - m["k" + f] - z]
        out += [y - p["Phi"] * (al * ks + (1.0 - al) * l + n["a"])]
        out += [z - k["z1"] * rk, rk - w - l + ks]
    by_price = [al * (n["ks" + f] - n["l" + f]) + n["a"] - n["w" + f] for f in ("", "_f")]
    by_wage = [
        n["w" + f] - p["sigma_l"] * n["l" + f] - (n["c" + f] - k["h"] * m["c" + f]) / (1.0 - k["h"])
        for f in ("", "_f")
    ]
    pi = k["pi0"] * (p["iota_p"] * m["pi"] + k["ahead"] * t["pi"] - k["pi3"] * by_price[0])
    wage = k["i1"] * m["w"] + (1.0 - k["i1"]) * (t["w"] + t["pi"]) - k["w4"] * by_wage[0]
    wage += k["i1"] * (p["iota_w"] * m["pi"] - (1.0 + k["ahead"] * p["iota_w"]) * n["pi"])
    gap, before = n["y"] - n["y_f"], m["y"] - m["y_f"]
    rule = (1.0 - p["rho"]) * (p["r_pi"] * n["pi"] + p["r_y"] * gap) + p["r_dy"] * (gap - before)
    out += [by_price[1], by_wage[1], n["pi"] - pi - n["sp"], n["w"] - wage - n["sw"]]
    out += [n["real"] - n["r"] + t["pi"], n["r"] - p["rho"] * m["r"] - rule - n["ms"]]
    a, b, g, i, r, price, wages = e * jnp.stack([p[f"sigma_{s}"] for s in SHOCKS])
    out += [n["g"] - p["rho_g"] * m["g"] - g - p["rho_ga"] * a, n["ep"] - price, n["ew"] - wages]
    for name, s, moved in (("a", "a", a), ("b", "b", b), ("qs", "i", i), ("ms", "r", r)):
        out.append(n[name] - p[f"rho_{s}"] * m[name] - moved)
    for name, s, own in (("sp", "p", "ep"), ("sw", "w", "ew")):
        out.append(n[name] - p[f"rho_{s}"] * m[name] - n[own] + p[f"mu_1{s}"] * m[own])
    return jnp.stack(out)


def policy(p: dict[str, Array], k: dict[str, Array]) -> tuple[Matrix, Matrix]:
    """y = G y(-1) + H e."""
    zero = jnp.zeros(SIZE)

    def equations(*at: Vector) -> Vector:
        return residuals(p, k, *at)

    at = (zero, zero, zero, jnp.zeros(len(SHOCKS)))
    B, F, D, E = jax.jacfwd(equations, (0, 1, 2, 3))(*at)

    def reduced(state: tuple[Matrix, ...], _: None) -> tuple[tuple[Matrix, ...], None]:
        back, here, ahead, first = state
        solved = jnp.linalg.solve(here, jnp.concatenate([back, ahead], 1))
        by_back, by_ahead = solved[:, :SIZE], solved[:, SIZE:]
        here = here - back @ by_ahead - ahead @ by_back
        return (-back @ by_back, here, -ahead @ by_ahead, first - ahead @ by_back), None

    first = lax.scan(reduced, (B, F, D, F), None, TURNS)[0][3]
    G = -jnp.linalg.solve(first, B)
    return G, -jnp.linalg.solve(F + D @ G, E)


def system(p: dict[str, Array]) -> tuple[Any, ...]:
    """A, the variance of what moves s, C, and the mean of data; s are variables that are
    remembered, and what is observed.
    """
    k = coefficients(p)
    G, H = policy(p, k)
    remembered = [NAMES.index(name) for name in ("y", "c", "i", "k", "y_f", "c_f", "i_f", "k_f")]
    remembered += [NAMES.index(name) for name in ("w", "pi", "r", *OWN[2:])]
    past = np.array(remembered)
    rows = np.array([NAMES.index(name) for name in ("y", "c", "i", "l", "pi", "w", "r")])
    grows = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    own = jnp.eye(SIZE)[rows] * grows[:, None]
    shown = jnp.concatenate([G[past], G[rows] - own])[:, past]
    moved = jnp.concatenate([H[past], H[rows]])
    A = jnp.concatenate([shown, jnp.zeros((len(shown), len(rows)))], 1)
    C = jnp.concatenate([jnp.zeros((7, len(past))), jnp.eye(7)], 1)
    growth = p["gamma_bar"]
    mean = jnp.stack([growth, growth, growth, p["l_bar"], p["pi_bar"], growth, k["rate"]])
    return A, moved @ moved.T, C, mean


def likelihood(p: dict[str, Array], errors: Vector, data: Matrix) -> Float[Array, ""]:
    """From parameters, with a stationary start."""
    A, noise, C, mean = system(p)
    return kalman(A, noise, C, errors, data - mean)
