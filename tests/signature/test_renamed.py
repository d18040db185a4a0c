"""Options that had another name: the old one works until 0.5.0, and says what to write."""

import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney.errors import OptionError

PAIRS = [("check", "contracts", False), ("checks", "runtime_checks", "later")]
WAYS = {
    "bare": lambda given: optimize(doubled, **given),
    "decorator": lambda given: optimize(**given)(doubled),
}


def doubled(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("old", "new", "value"), PAIRS, ids=[old for old, *_ in PAIRS])
def test_an_old_name_acts_and_says_the_new_one(way, old, new, value):
    """One warning, at the line that wrote it, with the version that removes the name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f = WAYS[way]({old: value})
    (warning,) = caught
    assert warning.category is DeprecationWarning
    assert str(warning.message) == (
        f"optimize(): the option `{old}` is called `{new}` now.\n"
        "Its meaning is the same. The old form goes in jitney 0.5.0.\n"
        f"Fix: write `{new}` instead of `{old}`."
    )
    line = Path(__file__).read_text().splitlines()[warning.lineno - 1]
    assert warning.filename == __file__
    assert f'"{way}": lambda given: optimize(' in line
    assert getattr(f.options, new) == value
    np.testing.assert_array_equal(f(jnp.ones(3)), 2 * np.ones(3))


@pytest.mark.parametrize(("old", "new", "value"), PAIRS, ids=[old for old, *_ in PAIRS])
def test_an_old_name_means_the_same_option(old, new, value):
    """Programs of both spellings are shared."""
    with pytest.warns(DeprecationWarning, match=f"called `{new}` now"):
        f = optimize(doubled, **{old: value})
    assert f.core is optimize(doubled, **{new: value}).core


@pytest.mark.parametrize(("old", "new", "value"), PAIRS, ids=[old for old, *_ in PAIRS])
def test_both_names_are_refused(old, new, value):
    """One of them would be dropped without a word."""
    with pytest.raises(OptionError, match=f"`{old}` and `{new}` are both given") as error:
        optimize(**{old: value, new: value})
    assert error.value.code == "J201"


@pytest.mark.parametrize(("old", "new", "value"), PAIRS, ids=[old for old, *_ in PAIRS])
def test_options_of_a_program_are_read_by_the_old_name_too(old, new, value):
    """With the same warning."""
    options = optimize(doubled, **{new: value}).options
    with pytest.warns(DeprecationWarning, match=f"`{old}` is called `{new}` now"):
        assert getattr(options, old) == value


def test_shared_takes_the_old_name():
    """Of the two options it has one."""
    with pytest.warns(DeprecationWarning, match="`check` is called `contracts` now") as caught:
        f = jitney.shared(check=False)(doubled)
    assert [warning.filename for warning in caught] == [__file__]
    assert not f.options.contracts


def test_shared_refuses_both_names():
    """As `optimize` does."""
    with pytest.raises(OptionError, match="`check` and `contracts` are both given"):
        jitney.shared(doubled, check=False, contracts=False)
