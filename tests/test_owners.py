"""Whose code a file or a frame is."""

import dataclasses
import functools
import sys
import sysconfig
import traceback
import warnings
from pathlib import Path

import equinox
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney import optimize
from jitney._owners import is_users, owner, owner_of, short, spelled_place

SITE = Path(jax.__file__).parents[1]
OURS = Path(jitney.__file__).parent


def written_in(file, source, **names):
    """What the source defines as `f`, as if it stood in that file."""
    space = {"__name__": "elsewhere", "jax": jax, "jnp": jnp, **names}
    exec(compile(source, str(file), "exec"), space)
    return space["f"]


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (jax.numpy.__file__, "jax"),
        (jaxlib.__file__, "jaxlib"),
        (equinox.nn.__file__, "equinox"),
        (optimize.__globals__["__file__"], "jitney"),
        (functools.__file__, "stdlib"),
        ("<frozen importlib._bootstrap>", "stdlib"),
        ("<string>", "generated"),
        (np.__file__, "numpy"),
        (__file__, "user"),
        (SITE / "jaxopt" / "a.py", "library"),
        (SITE / "jax_md" / "a.py", "library"),
        (SITE / "jaxley.py", "library"),
        (SITE / "jax.py", "library"),
        (SITE / "equinox_more" / "a.py", "library"),
        (f"{OURS}_tools/a.py", "user"),
        (f"{OURS.parent}/jitney.py", "user"),
        (f"{sysconfig.get_path('stdlib')}-mine/a.py", "user"),
        ("/home/me/.venv/lib/python3.11/site-packages/optax/a.py", "library"),
    ],
)
def test_a_file_belongs_to_the_package_in_whose_folder_it_lies(file, whose):
    """Not to one whose path begins with the same letters."""
    assert owner(str(file)) == whose
    assert is_users(str(file)) == (whose in ("user", "generated"))


def test_a_link_to_a_folder_is_that_folder(tmp_path):
    """A package that is installed by a link lies where the link points."""
    (tmp_path / "linked").symlink_to(OURS)
    assert owner(str(tmp_path / "linked" / "_errors.py")) == "jitney"


@pytest.mark.core("x.shape[0] == 6-*", "*== 1-jax.py")
@pytest.mark.parametrize(
    "name",
    [
        "jaxopt/_src/base.py",
        "jaxley/a.py",
        "jax_md/space.py",
        "jax.py",
        "equinox/nn/_linear.py",
        "optax/a.py",
    ],
)
@pytest.mark.parametrize(
    "decision", ["x.shape[0] == 6", "len({x.shape[0], 6}) == 1", "f'{x.shape[0]}' == '6'"]
)
def test_a_decision_by_size_in_a_package_is_seen(name, decision):
    """Whatever the first letters of its name: the function is not padded, and each size gets its
    own answer.
    """
    f = written_in(
        SITE / name,
        f"def f(x):\n    return 6 * jnp.ones_like(x) if {decision} else 600 * jnp.ones_like(x)",
    )

    @optimize(pad={"n": "pow2"})
    def g(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return f(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitney.JitneyWarning)
        answers = [float(g(jnp.ones(n))[0]) for n in (5, 6, 7)]
    assert answers == [600, 6, 600]


@pytest.mark.parametrize("file", ["<string>", "<stdin>", "<ipython-input-1-abc>"])
def test_a_decision_in_code_without_a_file_is_the_users(file):
    """In a notebook or under `python -c`, called by JAX: whose frame stands above it says
    nothing.
    """
    f = written_in(
        file,
        "def f(x):\n    return jax.vmap(lambda y: y * 6 if y.shape[0] == 6 else y, 1, 1)(x[:,"
        " None])[:, 0]",
        __name__="__main__",
    )

    @optimize(pad={"n": "pow2"})
    def g(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return f(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jitney.JitneyWarning)
        answers = [float(g(jnp.ones(n))[0]) for n in (5, 6, 7)]
    assert answers == [1, 6, 1]


def test_what_a_dataclass_writes_acts_for_its_caller():
    """Its `__eq__` has no file, and is run in the module of the class."""
    whose = []

    class Asked:
        def __eq__(self, other):
            whose.append(owner_of(sys._getframe(1)))
            return True

        __hash__ = None

    @dataclasses.dataclass
    class Pair:
        a: object

    assert Pair(Asked()) == Pair(Asked())
    assert whose == ["generated"]


def test_a_warning_points_past_jitney_alone():
    """A package beside ours whose name begins like ours is where the warning points."""
    f = written_in(
        f"{OURS}_tools/a.py",
        "def f(g, x):\n    return g(x)",
    )
    g = optimize(pad={"n": "pow2"})(lambda_of_size())
    with pytest.warns(jitney.JitneyWarning) as caught:
        f(g, jnp.ones(6))
    assert caught[0].filename == f"{OURS}_tools/a.py"


@optimize
def failing(x: Float[Array, "n"]) -> Float[Array, "n"]:
    raise KeyError("mine")


def frames(call):
    """The names of the files of a traceback, and of those of its causes."""
    with pytest.raises(Exception) as caught:
        call()
    error, files = caught.value, []
    while error is not None:
        files += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        error = error.__cause__ or error.__context__
    return files


class Quantities(jitney.states.State):
    x: Float[Array, "3"]


CALLS = [
    lambda: failing(jnp.ones(3)),
    lambda: failing.grad(jnp.ones(3)),
    lambda: failing.compile(jnp.ones(3)),
    lambda: failing(jnp.ones((3, 3))),
    lambda: failing(1, 2),
    lambda: jax.jit(failing)(jnp.ones(3)),
    lambda: jax.grad(lambda x: failing(x).sum())(jnp.ones(3)),
    lambda: jax.lax.scan(lambda c, _: (failing(c), None), jnp.ones(3), None, length=2),
    lambda: optimize(lambda x: x[x > 0])(jnp.ones(3)),
    lambda: optimize(memory="no size"),
    lambda: optimize(static="y")(lambda x: x),
    lambda: optimize(memory="no size")(lambda x: x),
    lambda: jitney.stream(failing, np.ones(3), chunk={"n": 1}),
    lambda: jitney.analysis.axes(failing),
    lambda: jitney.mesh(data=1000),
    lambda: jitney.Bucket(),
    lambda: jitney.Bucket.fit([]),
    lambda: jitney.LossScale(-1),
    lambda: jitney.processes.Checkpoints(3),
    lambda: Quantities.of(jnp.ones(9)),
    lambda: Quantities(x=jnp.arange(3)).array,
    lambda: jitney.pipeline(equinox.nn.Identity(), axis="stage"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_traceback_shows_the_users_frames_and_none_of_ours(call):
    """Those of the call and of the body, above and below JAX's own."""
    found = frames(call)
    assert __file__ in found
    assert [file for file in found if owner(file) == "jitney"] == []


def test_the_whole_traceback_can_be_asked_for(monkeypatch):
    """For who looks for a fault of jitney's."""
    monkeypatch.setenv("JITNEY_TRACEBACK", "full")
    assert "jitney" in map(owner, frames(CALLS[0]))


def test_the_whole_traceback_comes_where_jax_shows_its_own():
    """`jax_traceback_filtering="off"` asks for every frame, ours too."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        assert "jitney" in map(owner, frames(CALLS[0]))
    finally:
        jax.config.update("jax_traceback_filtering", before)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/a/b/fit.py", "fit.py"),
        ("/a/solver/__init__.py", "solver/__init__.py"),
        ("/a/tool/__main__.py", "tool/__main__.py"),
    ],
)
def test_a_file_is_named_by_what_tells_it(file, name):
    """Every package has an `__init__.py`."""
    assert short(file) == name


def lambda_of_size():
    """A function that pad refuses with a warning."""

    def h(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * jnp.sum(jnp.ones(20 - x.shape[0]))

    return h


@pytest.mark.parametrize(
    ("spot", "users", "text"),
    [
        (("/home/me/fit.py", 12, "residual"), "", "fit.py:12 (residual)"),
        (("/home/me/fit.py", 12, "residual"), "run.py:3 (main)", "fit.py:12 (residual)"),
        (
            (SITE / "lineax" / "_solve.py", 801, "linear_solve"),
            "",
            "_solve.py:801 (lineax's linear_solve)",
        ),
        (
            (SITE / "lineax" / "_solve.py", 801, "linear_solve"),
            "fit.py:12 (residual)",
            "fit.py:12 (residual; lineax's _solve.py:801)",
        ),
        (
            (np.__file__, 5, "f"),
            "fit.py:12 (residual; lineax's _solve.py:801)",
            "fit.py:12 (residual; numpy's numpy/__init__.py:5)",
        ),
    ],
)
def test_a_line_of_a_library_is_named_with_its_package_behind_the_users(spot, users, text):
    """The first word is a file and its number in each case: policies of precision name lines so."""
    file, line, function = spot
    assert spelled_place(str(file), line, function, users) == text
