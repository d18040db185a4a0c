"""Streams whose steps are kept: a later process finds each of its functions, and the order in which
they are called.
"""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import jitney
from tests.serialized import _lab as lab
from tests.serialized.test_kept import jitney_verifying

TEXT = """
import equinox as eqx
import jax
import jax.numpy as jnp
import jitney
import lab_helper as helper
from jaxtyping import Array, Float

def summary(w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"], scale: float = 2.0):
    "Two passes for the variance, three for the shares, one from the end, elements by place, and a word."
    r = helper.K * (x @ w - y)
    return {
        "variance": jnp.var(r), "shares": jax.nn.softmax(r), "top": jnp.max(x, 0), "name": "summary", "place": jnp.argmax(r),
        "above": jnp.cumsum(r), "below": jax.lax.cumsum(r, reverse=True), "scaled": scale * jnp.sum(y),
    }


def loss(w: Float[Array, "k"], x: Float[Array, "n k"], y: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean(jnp.tanh(x @ w - y) ** 2) * helper.K


def sorting(x: Float[Array, "n k"]):
    return jnp.sort(x[:, 0])


def checked(x: Float[Array, "n k"]) -> Float[Array, ""]:
    return jnp.sum(eqx.error_if(x, x > 1e6, "large"))


PROGRAMS = {
    "summary": jitney.optimize(cache=CACHE)(summary),
    "loss": jitney.optimize(cache=CACHE)(loss),
    "gradient": jitney.optimize(cache=CACHE)(loss).grad,
    "wide": jitney.optimize(cache=CACHE, precision="f64")(loss),
    "sorting": jitney.optimize(cache=CACHE)(sorting),
    "checked": jitney.optimize(cache=CACHE)(checked),
}
"""
RNG = np.random.default_rng(0)
X, Y, W = (RNG.normal(size=shape).astype(np.float32) for shape in ((103, 4), (103,), (4,)))
FOUND, KEPT = "found: neither traced nor lowered in this process", "cached for other processes"
DATA = {
    "summary": "wxy",
    "loss": "wxy",
    "gradient": "wxy",
    "wide": "wxy",
    "sorting": "x",
    "checked": "x",
}


def write(path, cache="program", k=1.5):
    lab.write(
        path, {"lab_main.py": TEXT.replace("CACHE", repr(cache)), "lab_helper.py": f"K = {k}\n"}
    )


def streamed(main, name, chunk=20, **more):
    data = {key: value for key, value in (("x", X), ("y", Y), ("w", W)) if key in DATA[name]}
    value, stats = jitney.stream(
        main.PROGRAMS[name], **data, chunk={"n": chunk}, progress=False, **more
    )
    return value, stats


def numbers(value):
    """All of it to the bit, with dtypes and weak types."""
    return [
        (np.asarray(x).dtype, np.asarray(x).tobytes(), getattr(x, "weak_type", False))
        for x in jax.tree.leaves(value)
        if not isinstance(x, str)
    ]


AUTO = pytest.param("summary", "auto", marks=pytest.mark.slow)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("name", "chunk"), [("summary", 20), ("gradient", 20), ("wide", 20), ("sorting", 20), AUTO]
)
def test_what_is_found_gives_the_bits_of_what_is_traced(folder, tmp_path, name, chunk):
    """Of whole chunks and of a shorter one in the end; a helper that is edited is the one that is
    computed with.
    """
    write(tmp_path, cache=True)
    with lab.process(tmp_path) as main:
        want = streamed(main, name, chunk)
    for k, note in ((1.5, KEPT), (1.5, FOUND), (2.5, KEPT)):
        write(tmp_path, k=k)
        with lab.process(tmp_path) as main:
            value, stats = streamed(main, name, chunk)
            assert (stats.kept, stats.chunks) == (
                note if name != "sorting" else note if k == 1.5 else FOUND,
                want[1].chunks,
            )
            assert (numbers(value) == numbers(want[0])) == (k == 1.5 or name == "sorting")


@pytest.mark.rest
def test_other_chunks_and_lengths_are_other_steps(folder, tmp_path):
    """And what is found in one process is not looked for again."""
    write(tmp_path)
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            for chunk in (20, 103 // 2, 20):
                assert streamed(main, "gradient", chunk)[1].kept == note
            data = {"x": X[:60], "y": Y[:60], "w": W}
            assert (
                jitney.stream(
                    main.PROGRAMS["gradient"], **data, chunk={"n": 20}, progress=False
                ).stats.kept
                == note
            )


@pytest.mark.rest
def test_a_checkpoint_of_a_traced_run_is_gone_on_with_by_a_found_one(folder, tmp_path):
    """The steps are of one computation, whoever made them."""

    class Stops:
        shape, dtype = X.shape, X.dtype

        def __init__(self, last):
            self.last = last

        def __getitem__(self, rows):
            if rows.stop > self.last:
                raise KeyboardInterrupt
            return X[rows]

    write(tmp_path, cache=True)
    with lab.process(tmp_path) as main:
        want = numbers(streamed(main, "loss")[0])
        with pytest.raises(KeyboardInterrupt):
            jitney.stream(
                main.PROGRAMS["loss"],
                x=Stops(60),
                y=Y,
                w=W,
                chunk={"n": 20},
                progress=False,
                checkpoint=tmp_path / "run",
                checkpoint_every=1,
            )
    write(tmp_path)
    with lab.process(tmp_path) as main:
        streamed(main, "loss")
    with lab.process(tmp_path) as main:
        value, stats = streamed(main, "loss", checkpoint=tmp_path / "run")
        assert (stats.kept, stats.chunks, numbers(value)) == (FOUND, 3, want)


@pytest.mark.rest
def test_run_time_checks_are_not_kept_in_a_stream(folder, tmp_path):
    """The reason is told."""
    write(tmp_path)
    with lab.process(tmp_path) as main:
        value, stats = streamed(main, "checked")
        np.testing.assert_allclose(value, X.sum(), rtol=1e-5)
        assert stats.kept == "not cached: it has run-time checks, and is read in chunks"


@pytest.mark.rest
def test_verify_compares_the_steps_too(folder, tmp_path):
    """What is found is planned and traced, and is the same."""
    write(tmp_path)
    for note in (KEPT, FOUND):
        with jitney_verifying(), lab.process(tmp_path) as main:
            assert streamed(main, "gradient")[1].kept == note


@pytest.mark.rest
@pytest.mark.skipif(os.name != "posix", reason="owners and modes")
def test_a_fresh_process_traces_no_body(tmp_path):
    """By the calls of Python's functions, in the second of two processes."""
    write(tmp_path)
    np.savez(tmp_path / "data.npz", x=X, y=Y, w=W)
    code = """
import json, sys
import jax, lab_main, jitney, numpy as np
called = set()
if sys.argv[1:]:
    sys.setprofile(lambda frame, what, value: called.add(frame.f_code.co_name) if what == "call" else None)
value, stats = jitney.stream(lab_main.PROGRAMS["summary"], **np.load("data.npz"), chunk={"n": 20}, progress=False)
sys.setprofile(None)
numbers = [np.asarray(x).tobytes().hex() for x in jax.tree.leaves(value) if not isinstance(x, str)]
print(json.dumps([stats.kept, "summary" in called, "plan_passes" in called, "in_parts" in called, numbers]))
"""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "JITNEY_CACHE_DIR": str(tmp_path / "cache"),
    }
    env.pop("XLA_FLAGS", None)
    said: list[list[object]] = []
    for told in ([], ["told"]):
        run = subprocess.run(
            [sys.executable, "-c", code, *told],
            env=env,
            cwd=tmp_path,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        said.append(json.loads(run.stdout))
    assert said[0][0] == KEPT
    assert said[1][:4] == [FOUND, False, False, True]
    assert said[0][4] == said[1][4]
