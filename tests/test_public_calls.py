"""Every public name, called with what it was not made for: it works, or raises a `JitneyError`; of
calls that do not fit Python says so.

`python -m tests.test_public_calls --calls 60000 --seed 1` finds what the few hundred calls of the
test do not.
"""

import argparse
import contextlib
import functools
import inspect
import io
import os
import pathlib
import random
import re
import sys
import tempfile
import traceback
import warnings
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

import jitney
from jitney import JitneyError, optimize
from jitney._signature.options import NAMES as OPTIONS
from tests._arrays import array, random_key
from tests._examples import examples
from tests._public import MODULES, public_names

X = np.arange(6, dtype=np.float32)


@optimize
def plain(x: Float[Array, "n"], s: float = 1.0):
    return jnp.sum(x * s)


@optimize(pad={"n": "pow2"})
def padded(x: Float[Array, "n"]):
    return jnp.cumsum(x)


@optimize(chunk={"n": 4})
def cut(x: Float[Array, "n"]):
    return jnp.sum(x)


def undecorated(x: Float[Array, "n"]):
    return jnp.sum(x**2)


class Layer(eqx.Module):
    w: Float[Array, "k"]

    def __call__(self, x: Float[Array, "n k"]):
        return x @ self.w


class Two(jitney.states.State):
    a: Float[Array, "k"]
    b: Float[Array, ""]


def files(folder):
    """Data of every kind of damage."""
    np.save(folder / "x.npy", X)
    np.savez(folder / "x.npz", x=X)
    np.save(folder / "objects.npy", np.array([1, "a", None], object))
    (folder / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00v")
    (folder / "cut.npz").write_bytes(b"PK\x03\x04zz")
    (folder / "text.npy").write_text("hello")


FILES = ["x.npy", "x.npz", "objects.npy", "cut.npy", "cut.npz", "text.npy", "missing.npy"]
NAMES = [
    *(
        "",
        "n",
        "x",
        "pow2",
        "auto",
        "bf16",
        "1GiB",
        "forward",
        "data",
        "fsdp",
        b"x",
        ("n",),
        ["x", "y"],
    ),
    *(
        {"n": 4},
        {"n": "pow2"},
        {"x": X},
        {"n": None},
        {1: 2},
        {"n": -3},
        {"x": 1},
        {"n": "data"},
        {"a": 0, "b": None},
    ),
]
NUMBERS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    2**40,
    1.5,
    float("nan"),
    1j,
    np.float64(2),
    np.datetime64("2020-01-01"),
]
ARRAYS = [
    *(
        X,
        X.astype(np.int32),
        X[:0],
        X.reshape(2, 3),
        [X],
        (X, X),
        np.array([None, 1], object),
        np.array(["a", "b"]),
    ),
    *(
        array(X),
        array(2.0),
        array(np.arange(3)),
        random_key(0),
        jax.ShapeDtypeStruct((3,), np.float32),
    ),
]
THINGS = [
    *((), [], {}, set(), {1, 2}, slice(2), range(3), Ellipsis, object(), KeyError("x")),
    *(plain, padded, cut, plain.grad, undecorated, functools.partial(undecorated, X), len),
    *(
        Layer,
        Layer(array(np.ones(3))),
        Two,
        int,
        type,
        Float[Array, "n"],
        jitney.Bucket(multiple=3),
        jax.devices()[0],
        jax.devices(),
    ),
]
POOL = [*FILES, *NAMES, *NUMBERS, *ARRAYS, *THINGS]
# One of each kind, for each place of each name in turn.
WRONG = [
    *(None, True, -1, 2**40, float("nan"), 1j, "", "n", b"x", (), {}, {"n": -3}, {1: 2}, object()),
    *(
        X[:0],
        X,
        np.array([None, 1], object),
        np.array(["a", "b"]),
        random_key(0),
        jax.ShapeDtypeStruct((3,), np.float32),
    ),
    *(plain, undecorated, Layer, Two),
]


def decorated(*args, **options):
    return optimize(**options)(undecorated)(X)


def derived(*args, **options):
    return jitney.lazy_derivatives(undecorated, **options).grad(X)


def targets():
    """Public functions and classes, and what programs answer. What starts processes or changes the
    settings of all is left out, and classes of what only jitney makes.
    """
    left_out = ("simulate", "configure", "Program", "Derivative", "Fetch", "Loaded")
    offered = public_names(*(module for module in MODULES if module is not jitney.testing))
    found = {path.rpartition(".")[2]: each for path, each in offered.items()}
    found = {name: each for name, each in found.items() if callable(each) and name not in left_out}
    found = {
        name: each
        for name, each in found.items()
        if not (inspect.isclass(each) and issubclass(each, (Exception, Warning)))
    }
    methods = [
        "plan",
        "compile",
        "lower",
        "grad",
        "value_and_grad",
        "jacobian",
        "hessian",
        "hessian_diag",
        "jvp",
        "vjp",
        "hvp",
        "linearize",
    ]
    found |= {f"f.{name}": getattr(plain, name) for name in methods}
    return found | {
        "f()": plain,
        "pad()": padded,
        "chunk()": cut,
        "f.grad.program": plain.grad.program,
        "State.of": Two.of,
        "optimize(...)()": decorated,
        "lazy_derivatives(...)()": derived,
    }


TARGETS = targets()


def parameters_of(name):
    like = {"optimize(...)()": optimize, "lazy_derivatives(...)()": jitney.lazy_derivatives}.get(
        name, TARGETS[name]
    )
    return list(inspect.signature(like).parameters.values())


def places_of(parameters):
    return [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def everywhere(name, value):
    """The call of a name with one value at each place that it needs, or at the first one if it
    needs none.
    """
    parameters = parameters_of(name)
    first = [*places_of(parameters)[:1], *(p for p in parameters if p.kind is p.VAR_POSITIONAL)]
    needed = [p for p in places_of(parameters) if p.default is p.empty] or first
    return (
        name,
        [value for _ in needed],
        {p.name: value for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty},
    )


def table():
    """Each value at the places of each function and of each class that people make objects of, and
    as each option; one for the rest.
    """
    made = (
        "Bucket",
        "Checkpoints",
        "LossScale",
        "Mesh",
        "Pipeline",
        "Schedule",
        "Stacked",
        "State",
    )
    for name in sorted(TARGETS):
        values = WRONG if name in made or not inspect.isclass(TARGETS[name]) else [object()]
        yield from (everywhere(name, value) for value in values)
    yield from (everywhere("load", file) for file in FILES)
    yield from (
        (name, [], {option: value})
        for name in ("optimize", "optimize(...)()")
        for option in OPTIONS
        for value in WRONG
    )
    kept = {"chunk": {"n": 2}, "progress": False}
    yield from (("stream", [plain, {"x": X}], {**kept, "checkpoint": value}) for value in WRONG)


def random_call(name, seed):
    return name, *arguments(random.Random(seed), name, POOL)


def arguments(rng, name, pool):
    """As many as it needs, most of the time, and some by name."""
    parameters = parameters_of(name) if name != "optimize" else []
    places = places_of(parameters)
    needed = [p for p in places if p.default is p.empty]
    args = [
        rng.choice(pool) for _ in range(len(needed) if rng.random() < 0.8 else rng.randint(0, 3))
    ]
    args += [
        rng.choice(pool)
        for p in parameters
        if p.kind is p.VAR_POSITIONAL
        for _ in range(rng.randint(0, 2))
    ]
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY] + places[len(args) :]
    return args, {
        p.name: rng.choice(pool)
        for p in named
        if rng.random() < (0.25 if p.default is not p.empty else 0.9)
    }


def call(name, args, kwargs):
    """The kind of a raw error, and the call; None if there is none."""
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            TARGETS[name](*args, **kwargs)
    except JitneyError:
        return None
    except Exception as error:  # noqa: BLE001
        frames = traceback.extract_tb(error.__traceback__)
        if isinstance(error, TypeError) and re.search(r"\w\(\) (takes|missing|got) ", str(error)):
            return None  # Python's own, of a call that does not fit
        if frames[-1].name in ("undecorated", "plain", "padded", "cut", "__call__") or re.search(
            "jaxtyping annotations cannot|has no len", str(error)
        ):
            return None  # the user's function
        ours = [frame for frame in frames if f"{os.sep}jitney{os.sep}_" in frame.filename]
        at = (
            f"{ours[-1].filename.rpartition('jitney' + os.sep)[2]}:{ours[-1].lineno}"
            if ours
            else ""
        )
        given_ = ", ".join(
            [*(repr(x)[:60] for x in args), *(f"{k}={v!r:.60}" for k, v in kwargs.items())]
        )
        return (
            name,
            type(error).__name__,
            at,
        ), f"{name}({given_}): {str(error).partition(chr(10))[0]}"
    return None


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JITNEY_TRACEBACK", "full")  # `call` tells by the frames whose an error is
        files(folder)
        yield


SENTENCES = {
    "a count of devices": (lambda: jitney.mesh(devices=2), r"jitney.mesh\(data=2\)"),
    "a list of data": (
        lambda: jitney.stream(cut, [X], None, None, chunk={"n": 2}),
        "too many positional arguments",
    ),
    "a size without an axis": (lambda: plain.plan(sizes=4), r'sizes={"n": 100}'),
    "a text for a scale": (lambda: jitney.LossScale("dynamic"), "They are numbers"),
    "a number for an axis of the mesh": (
        lambda: jitney.processes.from_processes(X, 0),
        "given by its name",
    ),
    "nothing to accumulate": (
        lambda: jitney.accumulate(None, axis="n", microbatch=2),
        "accumulate",
    ),
    "a number for an address": (lambda: jitney.processes.distributed(5, 2, 1), "host and port"),
    "no folder": (lambda: jitney.processes.Checkpoints(None), "A folder is a path"),
    "a rule without a name": (
        lambda: jitney.states.derived(functools.partial(undecorated)),
        "not a rule",
    ),
    "a bucket of two kinds": (lambda: jitney.Bucket(sizes=[4], multiple=2), "takes one of them"),
    "too few arguments": (lambda: plain(), "missing a required argument: 'x'"),
    "an array of text": (lambda: plain(np.array(["a"])), "'x' is an array of <U1"),
    "a shape for an array": (
        lambda: plain(jax.ShapeDtypeStruct((3,), np.float32)),
        "'x' is a shape",
    ),
    "an array of objects, ahead of time": (
        lambda: plain.compile(np.array([None])),
        "'x' is an array of object",
    ),
    "a vector of text": (lambda: Two.of(["a", "b"]), "not a vector"),
}


@pytest.mark.parametrize(("run", "said"), SENTENCES.values(), ids=SENTENCES)
def test_common_mistakes_have_their_sentence(run, said):
    """With the remedy."""
    with pytest.raises(JitneyError, match=said) as raised:
        run()
    assert "Fix: " in str(raised.value)


@pytest.mark.rest
@given(called=st.builds(random_call, st.sampled_from(sorted(TARGETS)), st.integers(0, 10**9)))
@examples(*({"called": called} for called in table()))
@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@pytest.mark.usefixtures("in_folder")
def test_what_is_wrong_is_told_by_an_error_of_ours(called):
    """Whatever is given."""
    found = call(*called)
    assert found is None, found[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        files(pathlib.Path(folder))
        kinds, shown = Counter(), {}
        for _ in range(asked.calls):
            name = rng.choice(sorted(TARGETS))
            found = call(name, *arguments(rng, name, POOL))
            if found is not None:
                kinds[found[0]] += 1
                shown.setdefault(*found)
    for kind, count in kinds.most_common():
        print(count, *kind, shown[kind][:250])
    print(
        f"seed {asked.seed}: {len(kinds)} kinds of raw errors in {asked.calls} calls of"
        f" {len(TARGETS)} names"
    )
    return bool(kinds)


if __name__ == "__main__":
    sys.exit(main())
