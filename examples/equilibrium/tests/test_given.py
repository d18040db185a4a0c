"""What is given wrongly is an error or a warning with its figure; nothing is read as something
else.
"""

import dataclasses
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.equilibrium import (
    BlanchardKahn,
    DegenerateRoot,
    Model,
    ModelError,
    NoPath,
    NoSteadyState,
    NotSettled,
    Point,
    at,
    derived,
    impulse_response,
    linearise,
    perfect_foresight,
    steady_state,
    sweep,
    verdict,
)
from examples.equilibrium.models.brock_mirman import MODEL, Params, Shocks, States
from tests._arrays import array

ENDS = ("steady", "stable")
SENTENCES = (ModelError, NoSteadyState, NoPath, BlanchardKahn)


@pytest.fixture(scope="module")
def steady():
    return steady_state(MODEL, Params())


def toy(equations, **changed):
    """u and x, and a shock z."""
    given = {
        "controls": {"u": 0.1},
        "states": {"x": 0.2},
        "shocks": {"z": 0.0},
        "params": {"rho": 0.5, "a": 0.5},
    }
    return Model(
        equations, **{**given, "persistence": lambda p: {"z": p["rho"]}, "name": "toy", **changed}
    )


def law(p, now, ahead):
    return {"rule": now.u - p["a"] * now.x - now.z, "law": ahead.x - 0.9 * now.x - p["a"]}


@pytest.mark.rest
def test_a_linear_solution_from_other_parameters_is_refused(steady):
    """With the parameter and both its values; one that was solved anew at the same parameters is
    the same.
    """
    other = linearise(steady_state(MODEL, Params(alpha=0.3)))
    with pytest.raises(ModelError, match=r"there 'alpha' is 0\.3, here 0\.36"):
        perfect_foresight(steady, terminal="stable", linear=other)
    perfect_foresight(steady, terminal="stable", linear=linearise(steady_state(MODEL, Params())))


@pytest.mark.rest
def test_a_linear_solution_of_another_model_is_refused(steady):
    """With its name."""
    model = toy(law)
    with pytest.raises(ModelError, match="linear= is of another model, toy"):
        perfect_foresight(steady, linear=linearise(steady_state(model, model.params)))


@pytest.mark.rest
def test_an_unknown_end_is_refused(steady):
    """Not read as "steady"."""
    with pytest.raises(ModelError, match=r'terminal is \'end\'\.\nIt is "steady" or "stable"'):
        perfect_foresight(steady, terminal="end")


@pytest.mark.rest
def test_a_path_that_does_not_settle_is_a_warning_with_its_figure():
    """x' = 0.9 x + 0.05 from 2 more than its steady state 0.5: after 5 dates 2 * 0.9^4 / 1.5 of it
    is left.
    """
    model = toy(law)
    steady = steady_state(model, {"rho": 0.5, "a": 0.05})
    with pytest.warns(
        NotSettled,
        match=r"at the last date it is 0\.87 off the steady state[\s\S]*Fix: take more dates",
    ) as warned:
        perfect_foresight(steady, {"x": 2.5}, dates=5)
    assert warned[0].filename == __file__


@pytest.mark.rest
def test_the_linear_policy_of_a_linear_model_is_exact_at_any_end():
    """So the same path on it is no warning; of a model that is not linear, it is off by the
    square.
    """
    model = toy(law)
    steady = steady_state(model, {"rho": 0.5, "a": 0.05})
    path = perfect_foresight(
        steady, {"x": 2.5}, dates=5, terminal="stable", linear=linearise(steady)
    )
    np.testing.assert_allclose(path["x"], 0.5 + 2.0 * 0.9 ** np.arange(5), rtol=1e-12)
    square = toy(lambda p, now, ahead: law(p, now, ahead) | {"rule": now.u - now.x * now.x})
    bent = steady_state(square, {"rho": 0.5, "a": 0.05})
    # 1.3 squared, beside 1 + 0.25
    with pytest.warns(NotSettled, match="with twice the dates it is another, by up to 1"):
        perfect_foresight(bent, {"x": 2.5}, dates=5, terminal="stable", linear=linearise(bent))


@pytest.mark.rest
def test_a_path_that_its_end_does_not_change_is_no_warning():
    """It is not linear, and far from the steady state where it ends; but in what moves it is exact,
    and so is the path.
    """
    square = toy(
        lambda p, now, ahead: (
            law(p, now, ahead) | {"rule": now.u - p["a"] * now.x - now.z - now.z * now.z}
        )
    )
    steady = steady_state(square, {"rho": 0.5, "a": 0.05})
    assert not square.linear
    path = perfect_foresight(
        steady, {"x": 2.5}, dates=5, terminal="stable", linear=linearise(steady)
    )
    np.testing.assert_allclose(path["x"], 0.5 + 2.0 * 0.9 ** np.arange(5), rtol=1e-12)
    np.testing.assert_allclose(path["u"], 0.05 * path["x"], rtol=1e-12)


@pytest.mark.rest
def test_draws_that_do_not_settle_are_counted_and_marked():
    """Brock and Mirman's capital goes back by alpha each period: 0.2^4 is little, 0.95^4 is not."""
    with pytest.warns(NotSettled, match=r"1 of 2 draws are up to 0\.\d+ off the steady state"):
        found = sweep(MODEL, Params(alpha=np.array([0.2, 0.95])), States(0.3), dates=5)
    assert found.settled.tolist() == [True, False]


@pytest.mark.rest
def test_an_explosive_shock_is_no_stable_solution():
    """Which grows by 1.05 each period; a path with it is refused, and one without it is not."""
    model = toy(law)
    steady = steady_state(model, {"rho": 1.05, "a": 0.5})
    with pytest.raises(BlanchardKahn, match=r"no stable solution: shocks explode, 'z' by 1\.05"):
        linearise(steady)
    assert verdict(steady).verdict == "no stable solution"
    with pytest.raises(ModelError, match=r"'z' explodes: it grows by 1\.05"):
        perfect_foresight(steady, None, {"z": 0.1})
    perfect_foresight(steady)
    # a unit root counts as stable
    assert verdict(steady_state(model, {"rho": 1.0, "a": 0.5})).verdict == "determinate"


@pytest.mark.rest
def test_a_point_that_is_no_steady_state_is_refused(steady):
    """With the equation that is furthest off, and by how much; a wider tolerance takes it."""
    controls, states = {"u": 2.6}, {"x": 5.0}
    with pytest.raises(ModelError, match=r"the point is none: equation 'rule' is off by 0\.1\."):
        at(toy(law), {"rho": 0.5, "a": 0.5}, controls, states)
    assert at(toy(law), {"rho": 0.5, "a": 0.5}, controls, states, tolerance=0.2)["u"] == 2.6
    same = at(MODEL, Params(), steady.controls, steady.states)
    np.testing.assert_allclose(linearise(same).G_x, linearise(steady).G_x, rtol=1e-10)


@pytest.mark.parametrize(
    "wrong", ["0.9", True, 1j, None, np.nan, -np.inf, [0.9, 0.8], np.array(["0.9"])], ids=repr
)
def test_parameters_are_finite_numbers(wrong):
    """Text is not read as a number, nor is anything else made one."""
    with pytest.raises(ModelError, match=r"parameters: (.*'rho|\[|a dict)"):
        steady_state(toy(law), {"rho": wrong, "a": 0.5})


def test_a_variable_in_no_equation_is_named():
    """And not the largest residual."""
    model = toy(
        lambda p, now, ahead: {
            "law": ahead.x - 0.5 * now.x - 1.0,
            "bound": now.x * now.x - ahead.x * 2.0,
        }
    )
    with pytest.raises(ModelError, match="'u' is in none of the equations"):
        steady_state(model, model.params)


@pytest.mark.rest
def test_a_variable_in_no_equation_is_named_by_dense_derivatives_too():
    """Whose places tell nothing, so the Jacobian does."""
    rules = lambda p, now, ahead: {
        "law": ahead.x - 0.5 * now.x - 1.0,
        "bound": now.x * now.x - ahead.x * 2.0,
    }
    model = toy(rules, rolled=False)
    with pytest.raises(NoSteadyState, match="no equation changes there with 'u'"):
        steady_state(model, model.params)


def test_equations_that_share_too_few_variables_are_named():
    """Two equations of x alone, though both u and v are in some equation."""
    rules = lambda p, now, ahead: {
        "one": now.x - 1.0,
        "two": ahead.x - p["a"],
        "three": now.u + now.v - now.x,
    }
    model = toy(rules, controls={"u": 0.0, "v": 0.0})
    with pytest.raises(ModelError, match="2 equations, 'one' and 'two', contain only 'x'"):
        steady_state(model, model.params)


@pytest.mark.rest
def test_an_equation_that_is_written_twice_is_named():
    """In another form, so that its derivatives stand at the same places; `w` and `law` are not to
    blame.
    """
    rules = lambda p, now, ahead: {
        "sum": now.u + now.v - now.x,
        "again": 2.0 * jnp.exp(now.u + now.v - now.x) - 2.0,
        "third": now.w - now.u * 0.0 - now.x,
        "law": ahead.x - 0.5 * now.x - 1.0,
    }
    model = toy(rules, controls={"u": 0.3, "v": 0.2, "w": 0.1})
    with pytest.raises(
        NoSteadyState, match="'again' and 'sum' are not independent and leave 'u' and 'v' open"
    ):
        steady_state(model, model.params)


def test_two_targets_of_one_variable_are_named():
    """Each frees a parameter, and together they say one thing."""
    model = dataclasses.replace(MODEL, slots=2)
    targets = {"alpha": ("logk", -1.0), "beta": ("logk", -1.1)}
    with pytest.raises(
        ModelError,
        match=(
            "2 equations, 'target of logk for alpha' and 'target of logk for beta', contain only"
            " 'logk'"
        ),
    ):
        steady_state(model, Params(), targets)


def test_a_freed_parameter_that_no_equation_contains_is_named():
    """The persistence of a shock does not move a steady state."""
    with pytest.raises(ModelError, match="'rho' is in none of the equations"):
        steady_state(MODEL, Params(), {"rho": ("logk", -1.0)})


@pytest.mark.rest
def test_names_that_are_not_there_are_sentences(steady):
    """Of a steady state, a linear solution, a path and a response."""
    linear = linearise(steady)
    path = perfect_foresight(steady, dates=3)
    for ask in (
        lambda: steady["k"],
        lambda: linear["k"],
        lambda: path["k"],
        lambda: impulse_response(linear, "k"),
    ):
        with pytest.raises(ModelError, match="there is no 'k'"):
            ask()


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"rho": 0.5}, "without 'a'"),
        ({"rho": 0.5, "a": 0.5, "b": 1.0}, "with 'b'"),
        ({}, "without 'a', 'rho'"),
        (3.0, "3.0 is no group"),
    ],
)
def test_keys_that_are_missing_or_too_many_are_named(params, said):
    """Instead of a mismatch of keys."""
    with pytest.raises(ModelError, match=said):
        steady_state(toy(law), params)


@pytest.mark.parametrize(
    ("equations", "said"),
    [
        (
            lambda p, now, ahead: {"rule": now.u - p["b"], "law": ahead.x},
            r"equations raised KeyError at test_given.py:\d+: 'b'",
        ),
        (lambda p, now: {}, "equations raised TypeError"),
        (
            lambda p, now, ahead: {"rule": now.u if now.x > 0 else now.x, "law": ahead.x},
            "equations raised TracerBoolConversionError",
        ),
        (lambda p, now, ahead: {"rule": "u", "law": ahead.x}, r"\['rule'\] is 'u'"),
        (lambda p, now, ahead: None, "0 equations, and 2 controls and states"),
        (lambda p, now, ahead: {"rule": now.u > 0, "law": ahead.x}, r"\['rule'\] is"),
    ],
)
def test_equations_that_do_not_fit_the_model_are_sentences(equations, said):
    """With the line."""
    with pytest.raises(ModelError, match=said):
        steady_state(toy(equations), {"rho": 0.5, "a": 0.5})


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (np.exp, "write `jax.numpy` for `numpy`"),
        pytest.param(math.exp, "write `jnp.exp", marks=pytest.mark.rest),
        pytest.param(
            lambda x: x if x > 0 else -x, "write `jnp.where", marks=pytest.mark.rest, id="if"
        ),
    ],
)
def test_what_jax_cannot_trace_is_answered_with_what_it_can(function, said):
    """NumPy with `jax.numpy`, `if` with `jnp.where`."""
    model = toy(lambda p, now, ahead: {"rule": now.u - function(now.x), "law": ahead.x})
    with pytest.raises(ModelError, match=said):
        steady_state(model, model.params)


def income(p, now, ahead):
    """Permanent income: marginal utility is a random walk, and so are consumption and wealth."""
    return {
        "euler": 1.0 / now.c - 1.0 / ahead.c,
        "budget": ahead.b - (now.b + 1.0 + now.y - now.c) / p["beta"],
    }


def saver(**changed):
    return toy(
        income,
        controls={"c": 1.0},
        states={"b": 0.0},
        shocks={"y": 0.0},
        persistence=lambda p: {"y": p["rho"]},
        params={"beta": 0.96, "rho": 0.9},
        **changed,
    )


@pytest.mark.rest
def test_a_unit_root_is_named_and_at_is_the_remedy():
    """Not an equation that is written twice; where equations are not independent, it is."""
    model = saver()
    with pytest.raises(
        NoSteadyState, match=r"by a unit root: 'euler'.*leaves 'c' and 'b' open[\s\S]*Fix: `at\("
    ):
        steady_state(model, model.params)
    steady = at(model, model.params, {"c": 1.0}, {"b": 0.0})
    np.testing.assert_allclose(linearise(steady).eigenvalues, [1.0, 1.0 / 0.96], rtol=1e-12)


@pytest.mark.rest
def test_a_path_with_a_unit_root_is_compared_with_the_one_that_comes_to_rest():
    """Income 0.1 higher, falling by 0.9 a year: consumption is higher by 0.04 times its present
    value for ever. With its old level at the end wealth explodes, at twice the dates too.
    """
    model = saver()
    steady = at(model, model.params, {"c": 1.0}, {"b": 0.0})
    with pytest.warns(NotSettled, match=r"it is another, by up to 3\.\nFix: pass terminal=.stable"):
        perfect_foresight(steady, None, {"y": 0.1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = perfect_foresight(
            steady, None, {"y": 0.1}, terminal="stable", linear=linearise(steady)
        )
    np.testing.assert_allclose(path["c"], 1.0 + 0.04 * 0.1 / (1.0 - 0.9 * 0.96), rtol=1e-12)


@pytest.mark.rest
def test_a_level_that_does_not_come_back_is_no_warning():
    """Prices stay where a shock has put them, and nothing depends on them: the path is right to
    1e-11 whichever end it is given.
    """
    from examples.equilibrium.models import gali

    equations = lambda p, now, ahead: {
        **gali.equations(gali.Params(), now, ahead),
        "prices": ahead.p - now.p - now.pi,
    }
    model = toy(
        equations,
        controls={"y": 0.0, "pi": 0.0, "i": 0.0},
        states={"p": 0.0},
        shocks={"v": 0.0},
        persistence=lambda p: {"v": p["rho"]},
    )
    with pytest.raises(NoSteadyState, match="is one and has others next to it, by a unit root"):
        steady_state(model, model.params)
    steady = at(model, model.params, {"y": 0.0, "pi": 0.0, "i": 0.0}, {"p": 0.0})
    linear = linearise(steady)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = [perfect_foresight(steady, None, {"v": 1.0}, 41, end, linear)["p"] for end in ENDS]
    assert abs(paths[0][-1]) > 0.5
    np.testing.assert_allclose(*paths, atol=1e-11)


def growth(p, now, ahead):
    """In levels, the Euler equation multiplied out."""
    return {
        "euler": ahead.c - p["beta"] * now.c * p["alpha"] * ahead.k ** (p["alpha"] - 1.0),
        "resources": now.c + ahead.k - jnp.exp(now.z) * now.k ** p["alpha"],
    }


@pytest.mark.rest
@pytest.mark.parametrize(("k", "meant"), [(0.2, True), (1.0, False)])
def test_a_root_at_which_consumption_is_zero_is_named(k, meant):
    """It is c = 0, k = 1, beside the one with k = (alpha beta)^(1 / (1 - alpha))."""
    params = {"alpha": 0.36, "beta": 0.96, "rho": 0.9}
    model = toy(growth, controls={"c": 0.3}, states={"k": k}, params=params)
    if meant:
        steady = steady_state(model, params)
        np.testing.assert_allclose(steady["k"], (0.36 * 0.96) ** (1.0 / 0.64), rtol=1e-12)
        return
    with pytest.warns(DegenerateRoot, match="'c' is 0 in the one that was found.*'euler' holds"):
        steady = steady_state(model, params)
    np.testing.assert_allclose(steady["k"], 1.0, rtol=1e-12)


@pytest.mark.rest
def test_a_root_at_infinity_is_named():
    """The logarithm of consumption runs off while all residuals vanish."""
    logs = lambda p, now, ahead: {
        "euler": jnp.exp(ahead.u) * (1.0 - p["a"] * jnp.exp(now.x)),
        "law": ahead.x + jnp.exp(now.u),
    }
    model = toy(logs, controls={"u": -1.0}, states={"x": -1.0})
    with pytest.raises(NoSteadyState, match=r"though all residuals vanish: 'u' runs to -"):
        steady_state(model, model.params)


def test_a_derived_quantity_whose_rule_reads_what_is_not_there():
    """The name that is missing, and not that of the quantity."""

    class Period(Point):
        @derived
        def y(self):
            return self.gamma * self.x

    with pytest.raises(AttributeError, match="neither a variable nor a derived quantity 'gamma'"):
        steady_state(
            toy(lambda p, now, ahead: {"rule": now.u - now.y, "law": ahead.x}, point=Period),
            {"rho": 0.5, "a": 0.5},
        )


@pytest.mark.parametrize(
    "group", [{"w": 0.5}, {}, 0.5, {"z": "0.5"}, {"z": array(np.ones(2))}, {"z": True}], ids=repr
)
def test_persistence_that_does_not_fit_the_shocks_is_a_sentence(group):
    """Other names, text, another shape."""
    with pytest.raises(ModelError, match="toy, persistence"):
        steady_state(toy(law, persistence=lambda p: group), {"rho": 0.5, "a": 0.5})


def test_traced_parameters_are_a_sentence():
    """Models are solved on the host."""
    with pytest.raises(ModelError, match="'a' is traced"):
        jax.jit(lambda a: steady_state(toy(law), {"rho": 0.5, "a": a})["x"])(0.5)


WRONG = (
    None,
    True,
    -1,
    0,
    3,
    1.5,
    np.nan,
    np.inf,
    1j,
    "x",
    "0.9",
    b"x",
    (),
    [],
    [1.0, 2.0],
    object(),
    len,
    lambda: None,
    lambda *_: "x",
    Point,
    Params,
    {},
    {"nope": 1.0},
    {"u": "0.9"},
    {1: 2.0},
    {"u": None},
    {"rho": 0.5, "a": np.nan},
    {3: ("logk", 1.0)},
    *(
        {"beta": target}
        for target in (
            "logk",
            ("logk",),
            ("logk", "0.9"),
            ("logk", np.nan),
            ("k", 1.0),
            (["k"], 1.0),
        )
    ),
    np.ones(0),
    np.ones((2, 3)),
    np.full(1, np.nan),
    np.array([None]),
    array(np.ones((2, 2))),
    Params(None, 0.9, 0.9),
    Params(np.ones(2), np.ones(3), 0.5),
    Params(np.ones((2, 2)), 0.9, 0.5),
    States("0.5"),
    Shocks(np.ones(4)),
)
NAMES = (
    "Model",
    "steady_state",
    "at",
    "linearise",
    "verdict",
    "impulse_response",
    "perfect_foresight",
    "sweep",
    "Steady",
    "Linear",
    "Path",
)


def entries():
    """Each public function, with arguments that are right."""
    steady = steady_state(MODEL, Params())
    linear = linearise(steady)
    path = perfect_foresight(steady, dates=3)
    fields = {
        "equations": law,
        "controls": {"u": 0.1},
        "states": {"x": 0.2},
        "shocks": {"z": 0.0},
        "params": {"rho": 0.5, "a": 0.5},
    }
    fields |= {
        "persistence": lambda p: {"z": p["rho"]},
        "point": Point,
        "slots": 1,
        "rolled": True,
        "name": "toy",
    }
    solved = lambda **given: verdict(steady_state(Model(**given), {"rho": 0.5, "a": 0.5}))
    begin = {"model": MODEL, "params": Params()}
    return {
        "Model": (solved, fields),
        "steady_state": (
            steady_state,
            {**begin, "targets": {"beta": ("logk", -1.5)}, "guess": steady},
        ),
        "at": (
            at,
            {**begin, "controls": steady.controls, "states": steady.states, "tolerance": 1e-6},
        ),
        "linearise": (linearise, {"steady": steady}),
        "verdict": (verdict, {"steady": steady}),
        "impulse_response": (
            impulse_response,
            {"linear": linear, "shock": "a", "size": 1.0, "periods": 3},
        ),
        "perfect_foresight": (
            perfect_foresight,
            {
                "steady": steady,
                "x0": States(-1.6),
                "z0": Shocks(0.001),
                "dates": 3,
                "terminal": "stable",
                "linear": linear,
            },
        ),
        "sweep": (
            sweep,
            {
                "model": MODEL,
                "params": Params(np.array([0.3, 0.4])),
                "off": States(0.0),
                "z0": Shocks(0.0),
                "dates": 3,
            },
        ),
        **{type(of).__name__: (of.__getitem__, {"name": "logk"}) for of in (steady, linear, path)},
    }


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore::examples.equilibrium.NotSettled")
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_given_is_taken_or_told(name):
    """Each argument of each public function in turn, left out or one of many wrong things: a
    result, or where, the rule and the fix.
    """
    function, given = entries()[name]
    bound = name in ("Steady", "Linear", "Path")
    bare = []
    for argument in given:
        for wrong in WRONG:
            try:
                function(wrong) if bound else function(**{**given, argument: wrong})
            except SENTENCES as error:
                if "Fix: " not in str(error):
                    bare.append((argument, wrong, error))
            except Exception as error:  # noqa: BLE001
                bare.append((argument, wrong, error))
    assert not bare, "\n".join(
        f"{argument}={wrong!r}: {type(error).__name__}: {error}" for argument, wrong, error in bare
    )


@pytest.mark.rest
def test_what_is_found_is_printed_in_few_lines(steady):
    """Names with numbers, and not all that a solution is made of."""
    assert repr(MODEL) == f"{MODEL.name}: controls logc; states logk; shocks a"
    assert repr(steady).splitlines()[1:] == ["  logc  -1.02168", "  logk  -1.66011"]
    linear = linearise(steady)
    assert repr(linear) == linear.message
    path = perfect_foresight(steady, dates=3)
    assert repr(path) == f"{MODEL.name}, path of 3 dates: logc, logk, a"
