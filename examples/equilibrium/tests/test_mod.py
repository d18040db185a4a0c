"""Models as `.mod` files, against the same models in Python, closed forms and equations that the
files do not have.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    Model,
    ModelError,
    at,
    linearise,
    moments,
    parse_mod,
    read_mod,
    solution,
    steady_state,
)
from examples.equilibrium._reference import load, renamed
from examples.equilibrium.models import gali

FOLDER = Path(gali.__file__).parent


def solved(mod, params=None):
    """The linear solution."""
    return linearise(steady_state(mod.model, mod.params if params is None else params))


def toy(model, more="", declared="var x y; varexo e; parameters a b; a = 0.9; b = 0.5;"):
    """A model of some equations."""
    return parse_mod(f"{declared}\nmodel;\n{model}\nend;\n{more}")


def test_equations_of_a_file_are_those_of_python():
    """Residuals at numbers of no meaning, with what the file calls them."""
    mod = read_mod(FOLDER / "new_keynesian.mod")
    now = SimpleNamespace(**{"y": 0.3, "pi": -0.2, "i": 0.7, "v": 0.4, "e": 0.1, "v(-1)": 0.9})
    ahead = SimpleNamespace(y=0.5, pi=0.6, **{"v(-1)": 0.2})
    ours = mod.model.equations(mod.params, now, ahead)
    python = gali.equations(gali.Params(), now, ahead)
    found = [ours[f"line {line}"] for line in (11, 12, 13)]
    np.testing.assert_allclose(found, list(python.values()), atol=1e-15)
    np.testing.assert_allclose(ours["line 14"], 0.4 - 0.5 * 0.9 - 0.1, atol=1e-15)
    np.testing.assert_allclose(ours["v(-1)"], 0.2 - 0.4, atol=1e-15)
    assert mod.covariance == [[0.0625]]
    assert mod.commands == ()


@pytest.mark.rest
def test_the_file_of_the_three_equations_is_the_model_in_python():
    """Responses of all variables to the shock."""
    mod = read_mod(FOLDER / "new_keynesian.mod")
    ours, python = solved(mod), linearise(steady_state(gali.MODEL, gali.Params()))
    for name in ("y", "pi", "i"):
        np.testing.assert_allclose(ours[name][1], python[name][1], rtol=1e-12)
    np.testing.assert_allclose(ours["v"], ([0.5], [1.0]), rtol=1e-12)


@pytest.mark.rest
def test_the_file_of_real_business_cycles_is_what_dynare_solved():
    """ghx and ghu of Dynare 5.4 at its own steady state, which is off by 4e-8, and ours in closed
    form, by search and through JAX.
    """
    mod, data = read_mod(FOLDER / "rbc.mod"), load("dynare_basic_rbc")
    given = {"rho" if name == "rho_A" else name: v for name, v in data["params"].items()}
    assert given == mod.params
    levels = {renamed(name): v for name, v in data["steady_state"].items()} | {"a": 0.0}
    states = mod.model.layouts[1].names
    linear = linearise(at(mod.model, mod.params, levels, {n: levels[n[:-4]] for n in states}))
    columns = [states.index(f"{renamed(name)}(-1)") for name in data["state_cols"]]
    for name, by_state, by_shock in zip(data["row_order"], data["ghx"], data["ghu"], strict=True):
        to_states, to_shocks = linear[renamed(name)]
        np.testing.assert_allclose(to_states[columns], by_state, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(to_shocks, by_shock, rtol=1e-8)
    linear = solved(mod)
    closed = at(mod.model, mod.params, *mod.steady(mod.params))
    np.testing.assert_allclose(closed.u, linear.steady.u, rtol=1e-6)
    with jax.enable_x64(True):
        found = jax.jit(lambda p: solution(mod.model, p, at=mod.steady(p)))(mod.params)
    np.testing.assert_allclose(found.u, linear.steady.u, rtol=1e-10)
    np.testing.assert_allclose(found.G_x, linear.G_x, rtol=1e-8, atol=1e-12)
    assert mod.commands == ((47, "steady"), (48, "stoch_simul(order = 1, irf = 40)"))


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["domestic", "cpi", "peg"])
def test_the_small_open_economy_keeps_equations_that_it_does_not_have(policy):
    """The household's Euler equation with consumption from the sharing of risk, and uncovered
    interest parity, from which Gali and Monacelli derive the demand of the file; in a calibration
    that is not theirs.
    """
    mod = read_mod(FOLDER / "small_open_economy.mod", {"policy": policy})
    given = {"sigma": 2.0, "eta": 1.5, "gamma": 1.2}
    linear = solved(mod, mod.params | given)
    states = linear.steady.model.layouts[1].names
    assert states == ("a(-1)", "s(-1)", "ystar(-1)")
    # what a variable is on average tomorrow: states of tomorrow are s, a and ystar of today
    rows = lambda name: np.hstack(linear[name])
    memory = np.vstack([rows(name[:-4]) for name in states])
    ahead = lambda name: linear[name][0] @ memory
    p = mod.params | given
    consumed = lambda of: of("ystar") + (1.0 - p["alpha"]) / p["sigma"] * of("s")
    real = rows("i") - ahead("pi")
    np.testing.assert_allclose(consumed(ahead) - consumed(rows), real / p["sigma"], atol=1e-12)
    world = p["sigma"] * (ahead("ystar") - rows("ystar"))
    np.testing.assert_allclose(rows("i") - world, ahead("de"), atol=1e-12)
    np.testing.assert_allclose(
        mod.covariance, [[0.0071**2, 0.3 * 0.0071 * 0.0078], [0.3 * 0.0071 * 0.0078, 0.0078**2]]
    )


@pytest.mark.rest
def test_two_countries_that_are_hit_alike_are_one():
    """Of a shock to both, consumption and capital of each are those of a closed economy whose
    productivity persists by rho + nu, to first order; and the covariance is that of the file.
    """
    mod = read_mod(FOLDER / "two_countries.mod")
    p = mod.params
    closed = Model(
        lambda q, now, ahead: {
            "euler": now.c ** -q["gamma"]
            - q["beta"]
            * ahead.c ** -q["gamma"]
            * (q["alpha"] * jnp.exp(ahead.a) * ahead.k ** (q["alpha"] - 1.0) + 1.0 - q["delta"]),
            "resources": now.c
            + ahead.k
            - jnp.exp(now.a) * now.k ** q["alpha"]
            - (1.0 - q["delta"]) * now.k,
        },
        {"c": 2.7},
        {"k": 38.0},
        {"a": 0.0},
        lambda q: {"a": q["rho"] + q["nu"]},
        p,
    )
    both, one = solved(mod), linearise(steady_state(closed, p))
    for name, same in (("c_home", "c"), ("k_abroad", "k")):
        to_states, to_shocks = both[name]
        np.testing.assert_allclose(to_shocks.sum(), one[same][1][0], rtol=1e-8)
        names = both.steady.model.layouts[1].names
        capital = [names.index("k_home(-1)"), names.index("k_abroad(-1)")]
        np.testing.assert_allclose(to_states[capital].sum(), one[same][0][0], rtol=1e-8)
    shared = 0.258 * 0.00852**2
    np.testing.assert_allclose(mod.covariance, [[0.00852**2, shared], [shared, 0.00852**2]])


@pytest.mark.rest
def test_lags_and_leads_beyond_one_are_auxiliary_variables():
    """An AR(2) whose lagged shock counts too, and a price that expects what is three dates ahead,
    in closed form.
    """
    mod = toy("x = a*x(-1) - 0.2*x(-2) + e + b*e(-1); y = b*y(+3) + x;")
    linear = solved(mod)
    assert linear.steady.model.layouts[1].names == ("e(-1)", "x(-1)", "x(-2)")
    np.testing.assert_allclose(linear["x"][0], [0.5, 0.9, -0.2], atol=1e-12)
    # y = (1 - b T^3)^-1 of x, with T what a date does to (e(-1), x, x(-1))
    T = np.array([[0.0, 0.0, 0.0], [0.5, 0.9, -0.2], [0.0, 1.0, 0.0]])
    row = np.array([0.5, 0.9, -0.2]) @ np.linalg.inv(np.eye(3) - 0.5 * np.linalg.matrix_power(T, 3))
    np.testing.assert_allclose(linear["y"][0], row, rtol=1e-10)


@pytest.mark.rest
def test_predetermined_variables_are_read_a_date_earlier():
    """Capital that is dated as in Python's form."""
    one = toy("x = a*x(-1) + e; y = x(-1);")
    other = toy(
        "x(+1) = a*x + e; y = x;",
        declared="var x y; varexo e; predetermined_variables x; parameters a b; a = 0.9; b = 0.5;",
    )
    for name in ("x", "y"):
        np.testing.assert_allclose(solved(one)[name], solved(other)[name], atol=1e-14)


@pytest.mark.rest
def test_what_a_file_may_write_in_other_ways():
    """Keywords of Python as names, functions, tags, options, comments of three kinds, a parameter
    that the steady state determines, `steady_state`, measurement errors, an included file.
    """
    mod = parse_mod(
        """
        var lambda $\\lambda$ (long_name = 'a // no comment; none'), in;  % comment
        varexo is;
        parameters or, as;  /* a comment
        over lines */
        or = 2 * sqrt(4) - 3.5;  // 0.5
        model;
          [name = 'first', mcpx = 'no']
          lambda = or*lambda(-1) + is*normpdf(0)*sqrt(2*3.141592653589793);
          in - as + lambda = max(0, -1) + ln(1) + steady_state(lambda)^2 - diff(lambda) * 1e-1;
        end;
        steady_state_model;
          as = exp((or^2)^1 * or^(-(1^2)));
          lambda = 0;
          in = as;
        end;
        varobs in;
        shocks; var is = 4; var in; stderr 0.1; end;
        """
    )
    assert tuple(mod.params) == ("or",)
    linear = solved(mod)
    np.testing.assert_allclose(linear.steady["in"], np.exp(0.5), rtol=1e-12)
    np.testing.assert_allclose(linear["lambda"], ([0.5], [1.0]), rtol=1e-12)
    np.testing.assert_allclose(linear["in"], ([-0.5 + 0.05], [-1.1]), rtol=1e-12)
    assert mod.observed == ("in",)
    np.testing.assert_allclose(mod.errors["in"], 0.01)
    assert "first" in mod.model.equation_names


@pytest.mark.rest
def test_macros_are_those_of_the_language():
    """Loops over lists and ranges, conditions in each other, arithmetic, elements from one on, what
    the caller defines.
    """
    text = """
    @#define n = 1 + 2*1
    @#define names = ["p", "q", "r"]
    @#ifdef shortened
      @#define n = 2
    @#endif
    var @#
    """
    text = text.replace("var @#\n", "var\n") + "\n".join(
        [
            "@#for i in 1:n",
            "  @{names[i]}",
            "@#endfor",
            "; varexo e; parameters a; a = 0.5;",
            "model;",
            "@#for i in 1:n",
            '@#if i == 1 && !(names[1] == "q")',
            "  @{names[i]} = a*@{names[i]}(-1) + e;",
            "@#elseif i in [2, 7] || false",
            "  @{names[i]} = @{i+1} * @{names[i-1]};",
            "@#else",
            "  @{names[i]} = @{length(names)} * @{names[1]}(-1);",
            "@#endif",
            "@#endfor",
            "end;",
        ]
    )
    linear = solved(parse_mod(text))
    np.testing.assert_allclose(linear["q"], ([1.5], [3.0]), rtol=1e-12)
    np.testing.assert_allclose(linear["r"], ([3.0], [0.0]), atol=1e-12)
    assert "r" not in parse_mod(text, defines={"shortened": True}).model.controls


@pytest.mark.rest
def test_moments_take_the_covariance_of_the_file():
    """Shocks are in the order of their names, whatever that of the file."""
    mod = toy(
        "x = u + 2*e; y = a*y(-1) + u;",
        "shocks; var u; stderr 2; var e = 9; corr u, e = 0.5; end;",
        "var x y; varexo u e; parameters a; a = 0.6;",
    )
    with jax.enable_x64(True):
        found = moments(mod.model, solution(mod.model, mod.params), mod.covariance, ["x", "y"])
    np.testing.assert_allclose(
        found.covariance[0], [[4.0 + 36.0 + 4.0 * 3.0, 4.0 + 2.0 * 3.0], [10.0, 4.0 / 0.64]]
    )


WRONG = {
    "var x y; varexo e;\nfor i=1:3;": r"model.mod:2: 'for i=1:3' is not read",
    "trend_var(growth_factor=1.0) A;": "'trend_var",
    "var(log) x;": "has options",
    "var x;\nvar x;": "'x' is there already, in model.mod:1",
    "parameters a;\na = 1/0;": r"model.mod:2: '1/0' is inf",
    "a = b;": "'b' has no value here",
    "a = 2 b;": "'2 b' is not an expression",
    "a = 2\nb = 3;": "'2', which goes on with 'b = 3', is not an expression",
    "var x; model;\nx = 1": "has no end",
    "@#for i in 1:2\nvar x;": "`@#for` has no end",
    "@#define f(x) = x": "`@#define f",
    "@#include 'no.mod'": "there is no file 'no.mod'",
    "@#error 'so'": "so",
    "@#define a = b": r"model.mod:1: 'b' is not read: 'b' is not defined",
    "@#regimes 2": "`@#regimes` is not read",
    "@#for i in 3\nvar x;\n@#endfor": "the loop is over '3'",
    '@#for i in "ab"\nvar x;\n@#endfor': "the loop is over 'ab'",
    "@#for (i, j) in [(1, 2), 3]\nvar x;\n@#endfor": "2 names, and 3 is in its list",
    "@#for (i, j) in [(1, 2, 3)]\nvar x;\n@#endfor": r"2 names, and \(1, 2, 3\) is in its list",
    "@#define a = 1:0:3": "'1:0:3' is not read: ",
    '@#define a = 1:"b"': "is not read: ",
    "@#define a = [2]:3": "is not read: ",
    "@#define a = max([])": r"'max\(\[\]\)' is not read: ",
    "parameters a;\na = 2^(1/0);": "is inf",
    "parameters a;\na = 2^1e300;": "is inf",
    "var x; varexo e; model; x = x(1e999) + e; end;": "`x` of 1 is not read",
}


@pytest.mark.parametrize("text", [pytest.param(t, marks=pytest.mark.rest) for t in WRONG])
def test_what_is_not_read_is_named_with_its_line(text):
    """And not skipped."""
    with pytest.raises(ModelError, match=WRONG[text]) as raised:
        parse_mod(text)
    assert "Fix: " in str(raised.value)


INSIDE = {
    "x = y;\n\ny = a^b^x;": r"model.mod:5: a power of a power",
    "x = y; y = a^-b^x;": "a power of a power",
    "x = y;\ny = z;": r"model.mod:4: 'z' is not declared",
    "x = y; y = a(+1);": "'a' has a lead",
    "x = y; y = (x > 0);": "`x > 0` is not read",
    "x = y; y = x(b);": "`x` of 1 is not read",
    "x = y; y = f(x, y);": "`f` of 2 is not read",
    "x = y = e;": "more than one equals sign",
    "x = y;": "there are 1 equations and 2 variables",
    "x = e; x = 2*e;": "variable 'y' is in none",
    "x = y; [mcp = 'x>0'] y = e;": "the tag 'mcp'",
    "x = y; y = steady_state(x);": "needs a block `steady_state_model`",
    "#a = 2; x = y; y = e;": "'a' is there already",
    "x = y; y = EXPECTATION(-1)(x);": "is not read",
}


@pytest.mark.parametrize(
    "text",
    [pytest.param(t, marks=() if i == 0 else pytest.mark.rest) for i, t in enumerate(INSIDE)],
)
def test_what_is_not_read_in_a_model_is_named_with_its_line(text):
    """Where it stands in an equation of several lines too."""
    with pytest.raises(ModelError, match=INSIDE[text]) as raised:
        _ = toy(text).model.graph
    assert "Fix: " in str(raised.value)


BEHIND = {
    "shocks; var e; periods 1:3; values 0.1; end;": "'periods 1:3' is not read",
    "shocks; var z; stderr 1; end;": "'z' is not declared",
    "shocks; var x, y = 1; end;": "Measurement errors are independent",
    "shocks; var x, z = 1; end;": "'z' is not declared",
    "initval; e = 1; end;": "shock 'e' is 1 in the steady state",
    "initval; z = 1; end;": "'z' is not a variable",
    "steady_state_model; x = 1; end;": "does not assign 'y'",
    "steady_state_model; x = y; y = 1; end;": "'y' is not known here",
    "steady_state_model; x = 0; y = 0; e = 1; end;": "shock 'e' is assigned",
    "steady_state_model; [x, y] = f(a); end;": "is not an assignment",
}


@pytest.mark.rest
@pytest.mark.parametrize("text", BEHIND)
def test_what_is_not_read_behind_a_model_is_named_with_its_line(text):
    """In the blocks that follow."""
    with pytest.raises(ModelError, match=BEHIND[text]) as raised:
        toy("x = a*x(-1) + e; y = x;", text)
    assert re.match(r"model\.mod:[15]: ", str(raised.value))


@pytest.mark.rest
def test_files_of_other_letters_are_read_and_what_is_not_text_is_told(tmp_path):
    """A mark of the order of bytes, a comment in Latin letters of one byte, an included file; and
    numbers of a machine.
    """
    (tmp_path / "more.mod").write_bytes("x = 0.5*x(-1) + e; // \xe9t\xe9\n".encode("latin-1"))
    text = "\ufeffvar x; varexo e;\nmodel;\n@#include 'more.mod'\nend;"
    (tmp_path / "one.mod").write_text(text, encoding="utf-8")
    np.testing.assert_allclose(solved(read_mod(tmp_path / "one.mod"))["x"], ([0.5], [1.0]))
    (tmp_path / "more.mod").write_bytes(np.arange(4.0).tobytes())
    for name in ("one.mod", "more.mod"):
        with pytest.raises(ModelError, match=r"more\.mod:1: it is not text"):
            read_mod(tmp_path / name)


@pytest.mark.rest
def test_what_is_read_and_what_is_not_run_is_printed():
    """Two commands of one line too."""
    mod = toy("x = a*x(-1) + e; y = x;", "steady; check;\nstoch_simul(order=1) x;")
    assert repr(mod).splitlines() == [
        "model.mod: controls x, y; states x(-1); shocks e",
        "  line 5, not run: steady",
        "  line 5, not run: check",
        "  line 6, not run: stoch_simul(order=1) x",
    ]


@pytest.mark.rest
def test_the_steady_state_of_a_file_is_float64_on_the_host():
    """Whatever JAX computes in; and where it divides by zero it is not finite, as in the model."""
    mod = toy(
        "x = a*x(-1) + (1 - a)*log(b)/3 + e; y = x/b;",
        "steady_state_model; x = log(b)/3; y = x/b; end;",
    )
    u, x = mod.steady(mod.params)
    np.testing.assert_allclose(u["x"], np.log(0.5) / 3.0, rtol=1e-15)
    assert x == {"x(-1)": u["x"]}
    assert mod.steady({"a": 0.9, "b": 0.0})[0]["y"] == -np.inf
    with pytest.raises(ModelError, match="steady_state_model, parameters: a dict without 'b'"):
        mod.steady({"a": 0.9})


@pytest.mark.rest
def test_a_file_that_says_linear_and_is_not_is_told():
    """With the line of its block."""
    with pytest.raises(ModelError, match=r"model.mod:1: the model is not linear"):
        parse_mod("var x; varexo e; model(linear); x = x(-1)*x + e; end;")
