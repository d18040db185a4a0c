"""Settings of the process: an option comes before `jitney.configure`, and that before the
environment; a change holds from the next call on.
"""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._host.switches import SETTINGS, VARIABLES
from jitney._program import entry
from jitney._verify import is_verified
from jitney.errors import NonFiniteError, OptionError
from tests._arrays import array
from tests._switched import configured, environment
from tests._tracing import count_traces

X = array(np.arange(1.0, 4.0, dtype=np.float32))
SHORT = "compiled for short compile times"
OTHER = {"verify": True, "debug_nans": True, "compiler": "fast", "auto": True}
USUAL = {"verify": False, "debug_nans": False, "compiler": "default", "auto": False}
TEXTS = {"verify": "1", "debug_nans": "on", "compiler": "Fast", "auto": "1"}
each_setting = pytest.mark.parametrize("name", VARIABLES)


@pytest.fixture(autouse=True)
def _usual_settings():
    """Without what the tests themselves run under."""
    before = {name: os.environ.pop(name) for name in VARIABLES.values() if name in os.environ}
    SETTINGS.read_environment("test")
    yield
    os.environ.update(before)
    SETTINGS.read_environment("test")


def fresh():
    """A function that no other test has."""

    def doubled(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.log(x) * 2

    return doubled


def lines(f, name):
    return [line for line in f.plan(X).lines if line.name == name]


def acts(f, name):
    """Whether the plan says that a setting is in effect."""
    if name == "compiler":
        return SHORT in lines(f, "jit")[0].why
    if name == "auto":
        return bool(lines(f, name))
    return lines(f, name)[0].asked


def told(f, name):
    """The part of the plan's line of settings on one of them."""
    return [
        part
        for line in lines(f, "settings")
        for part in line.why.split(", ")
        if part.startswith(name)
    ]


@each_setting
def test_the_environment_is_the_default(name):
    """Read at the decoration, in any case; the plan names the variable."""
    with environment(**{VARIABLES[name]: TEXTS[name]}):
        f = optimize(fresh())
        f(X)
        assert acts(f, name)
        assert told(f, name)[0].endswith(f"by {VARIABLES[name]}")


@each_setting
def test_configure_comes_before_the_environment(name):
    """Either way round."""
    with environment(**{VARIABLES[name]: TEXTS[name]}), configured(**{name: USUAL[name]}):
        f = optimize(fresh())
        f(X)
        assert not acts(f, name)
    with configured(**{name: OTHER[name]}):
        f(X)
        assert acts(f, name)
        assert told(f, name)[0].endswith("by `jitney.configure`")


@each_setting
def test_an_option_comes_before_configure(name):
    """Either way round; the plan says that it is the option."""
    with configured(**{name: OTHER[name]}):
        f = optimize(**{name: USUAL[name]})(fresh())
        f(X)
        assert not acts(f, name)
        assert told(f, name) == [f"{name}={USUAL[name]!r} by the option"]
    g = optimize(**{name: OTHER[name]})(fresh())
    g(X)
    assert acts(g, name)


@each_setting
def test_none_is_the_setting(name):
    """Options show what was written, not what is in effect."""
    with configured(**{name: OTHER[name]}):
        f = optimize(**{name: None})(fresh())
        f(X)
        assert getattr(f.options, name) is None
        assert acts(f, name)


@pytest.mark.parametrize("name", ["debug_nans", "compiler"])
def test_a_change_between_calls_takes_another_program(name):
    """Of functions that have run; after a change back the first program is found again."""
    body = count_traces(fresh())
    f = optimize(body)
    with configured(**{name: USUAL[name]}):
        f(X), f(X)
        jitney.configure(**{name: OTHER[name]})
        f(X), f(X)
        assert acts(f, name)
        assert body.traces == 2
        jitney.configure(**{name: USUAL[name]})
        f(X), f(X)
        assert not acts(f, name)
        assert body.traces == 2


@pytest.mark.parametrize("name", ["debug_nans", "compiler"])
def test_a_change_of_settings_is_the_cause_of_the_new_program(name):
    """With what to write."""
    f = optimize(fresh())
    with configured(**{name: USUAL[name]}):
        f(X)
        jitney.configure(**{name: OTHER[name]})
        f(X)
    (cause,) = f.stats.causes[-1]
    assert (cause.kind, cause.argument) == ("setting", name)
    assert (cause.old, cause.new) == (repr(USUAL[name]), repr(OTHER[name]))
    assert cause.remedy == f"jitney.configure({name}=...), once, before the first call"


def test_compiler_options_of_the_setting_reach_the_compiler():
    """As the option's do: the text of the program that ran differs."""
    f, g = optimize(fresh()), optimize(compiler="fast")(fresh())
    with configured(compiler="fast"):
        ours = f.lower(X).compile().as_text()
    assert ours.count("fusion") == g.lower(X).compile().as_text().count("fusion")


def test_a_nan_is_found_after_the_change_only():
    """In a function that has run, and not any more after a change back."""
    f = optimize(fresh())
    assert np.isnan(f(-X)).all()
    with configured(debug_nans=True):
        with pytest.raises(NonFiniteError, match="`log` made the first NaN"):
            f(-X)
        jitney.configure(debug_nans=False)
        assert np.isnan(f(-X)).all()


def test_a_derivative_follows_the_setting():
    """Its program is another function's, without options of its own."""
    f = optimize(lambda x: jnp.sum(jnp.sqrt(x)))
    zero = jnp.zeros(2)
    assert np.isinf(f.grad(zero, wrt="x")).all()
    with configured(debug_nans=True), pytest.raises(NonFiniteError):
        f.grad(zero, wrt="x")
    assert np.isinf(f.grad(zero, wrt="x")).all()


def test_a_stream_follows_the_setting():
    """What it returns is looked at, that of a derivative too; not any more after a change back."""

    @optimize
    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sqrt(x))

    zeros = np.zeros(6, np.float32)
    with configured(debug_nans=True):
        with pytest.raises(NonFiniteError, match="a result has a NaN"):
            total.stream(zeros - 1, chunk={"n": 2}, progress=False)
        with pytest.raises(NonFiniteError):
            total.grad.stream(zeros, chunk={"n": 2}, progress=False)
    assert np.isnan(total.stream(zeros - 1, chunk={"n": 2}, progress=False).result)


def test_a_change_by_another_thread_while_a_call_decides_is_not_lost(monkeypatch):
    """The setting changes after the decision has read it: later calls follow the new one."""
    f = optimize(pad={"n": "pow2"})(fresh())

    def changed_after_reading(options):
        before = is_verified(options)
        jitney.configure(verify=True)
        return before

    with configured(verify=False):
        monkeypatch.setattr(entry, "is_verified", changed_after_reading)
        f(X), f(X)
        assert f.stats.verified


def test_a_call_that_began_before_a_change_runs_as_it_began():
    """A setting changes between the look-up of a call and its run: it has no part of the new one,
    and the way by which it was looked up serves no later call.
    """
    body = count_traces(fresh())
    f = optimize(body)
    f(-X), f(-X)
    found = f._core.usual
    with configured(debug_nans=True):
        # As another thread leaves it, which has read the setting before the change.
        f._core.usual = found
        assert np.isnan(f(-X)).all()
        assert body.traces == 1
        with pytest.raises(NonFiniteError):
            f(-X)
    assert np.isnan(f(-X)).all()


def test_a_function_that_calls_another_follows_the_setting_by_its_own_option():
    """With debug_nans=False it keeps its program, whatever the inner function does alone."""
    inner = optimize(fresh())
    outer = optimize(debug_nans=False)(lambda x: inner(x) + 1)
    assert np.isnan(outer(-X)).all()
    with configured(debug_nans=True):
        assert np.isnan(outer(-X)).all()
        with pytest.raises(NonFiniteError):
            inner(-X)
    loose = optimize(lambda x: inner(x) + 1)
    assert np.isnan(loose(-X)).all()
    with configured(debug_nans=True), pytest.raises(NonFiniteError):
        loose(-X)


def test_donated_buffers_are_kept_while_debug_nans_is_set():
    """A bad call is run again, which needs them; the same function donates before and after."""
    f = optimize(donate="x")(fresh())
    with configured(debug_nans=True):
        given = jnp.arange(1.0, 4.0)
        f(given)
        assert not given.is_deleted()
    f(given)
    assert given.is_deleted()


def test_a_program_of_cache_program_is_not_cached_under_the_setting():
    """It holds no compiler options, as with the option."""
    f = optimize(cache="program")(fresh())
    f(X)
    with configured(compiler="fast"):
        f(X)
        assert 'programs with `compiler="fast"` are not cached' in lines(f, "cached program")[0].why
    assert "are not cached" not in lines(f, "cached program")[0].why


def test_a_program_that_was_compiled_ahead_stays_as_it_is():
    """The caller holds it; a setting is for programs that jitney looks for."""
    f = optimize(fresh())
    ahead = f.lower(X).compile()
    with configured(debug_nans=True, compiler="fast"):
        np.testing.assert_allclose(ahead(X), 2 * np.log([1, 2, 3]), rtol=1e-6)


def test_an_exported_program_leaves_settings_behind(tmp_path):
    """And its plan says which."""
    pytest.importorskip("flatbuffers")
    f = optimize(fresh())
    with configured(debug_nans=True, compiler="fast"):
        f.export(tmp_path / "f.jitney", X)
    loaded = jitney.load(tmp_path / "f.jitney")
    assert np.isnan(loaded(-X)).all()
    assert "left behind: debug_nans: nothing looks at the results" in loaded.plan
    assert "left behind: compiler: compiled with XLA's usual options" in loaded.plan


def test_under_an_outer_jit_the_setting_warns_as_the_option_does():
    """Its results are not looked at there, which is said once."""
    f = optimize(fresh())
    with (
        configured(debug_nans=True),
        pytest.warns(jitney.JitneyWarning, match="looks at nothing under an outer transform"),
    ):
        jax.jit(f)(X)


def test_settings_that_are_usual_have_no_line():
    """A plan is as long as what was asked for."""
    assert lines(optimize(fresh()), "settings") == []


@pytest.mark.parametrize(
    ("name", "value"), [("verify", 1), ("debug_nans", "yes"), ("compiler", "O3"), ("compiler", 3)]
)
def test_a_malformed_setting_is_refused(name, value):
    """And no setting of the same call is changed."""
    other = "verify" if name == "debug_nans" else "debug_nans"
    with pytest.raises(OptionError, match=f"{name}={value!r} is not understood") as error:
        jitney.configure(**{name: value, other: True})
    assert error.value.code == "J206"
    assert not getattr(SETTINGS.now, other)


@each_setting
def test_a_malformed_variable_is_refused_at_the_decoration(name):
    """With the variable's name; once it is corrected the same function is decorated."""
    body = fresh()
    with environment(**{VARIABLES[name]: "perhaps"}):
        with pytest.raises(OptionError, match=f"{VARIABLES[name]}='perhaps' is not known") as error:
            optimize(body)
        assert error.value.code == "J206"
    np.testing.assert_allclose(optimize(body)(X), 2 * np.log([1, 2, 3]), rtol=1e-6)


@each_setting
def test_a_variable_that_is_off_or_empty_asks_for_nothing(name):
    """As one that is not set."""
    for text in ("", "default" if name == "compiler" else "0"):
        with environment(**{VARIABLES[name]: text}):
            f = optimize(fresh())
            f(X)
            assert not acts(f, name)


def test_a_warm_call_runs_the_compiled_function_itself():
    """After a change and back, nothing stands before JAX's function."""
    f = optimize(fresh())
    f(X)
    with configured(compiler="fast"):
        f(X)
    f(X), f(X)
    specialization, _ = f.core.usual
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert specialization.run is specialization.jitted


@pytest.mark.rest
def test_a_change_of_a_setting_leaves_the_remedies_of_earlier_programs():
    """The programs of each setting are told apart where a remedy is looked for."""

    @optimize(pad={"n": "pow2"})
    def total(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(x)

    for size in (5, 6, 7, 9, 10, 17):
        total(np.ones(size, np.float32))
    remedies = {cause.remedy for causes in total.stats.causes for cause in causes} - {""}
    assert remedies
    with configured(debug_nans=True):
        total(np.ones(5, np.float32))
    after = {cause.remedy for causes in total.stats.causes for cause in causes}
    assert remedies <= after
