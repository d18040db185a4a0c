"""`on_compile_error` and `on_memory_error`: what XLA cannot compile or run is run once more,
another way, with a warning; and not at all where that could do anything twice.
"""

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from jaxtyping import Array, Float, Key

import jitney
from jitney import optimize
from jitney._program.runners.fallback_calls import FallbackCalls
from jitney._stages import Chunk
from jitney.errors import ChunkWarning, EagerWarning, NonFiniteError, OptionError
from tests._arrays import array

UNKNOWN = {"xla_no_such_option": True}
RNG = np.random.default_rng(0)
Q = RNG.normal(size=512).astype(np.float32)
W = RNG.normal(size=(32, 32)).astype(np.float32)
CHUNK = {"on_memory_error": "chunk"}
EAGER = {"on_memory_error": "eager"}


def layer(q: Float[Array, "m"], w: Float[Array, "n n"]) -> Float[Array, "m"]:
    """One number for each of `q`, by way of an array of 32 for each."""
    return jnp.sort(jnp.sin(q[:, None] * w[0]), axis=1)[:, 3]


def by_hand(q, w):
    q, w = np.float64(q), np.float64(w)
    return np.sort(np.sin(q[:, None] * w[0]), axis=1)[:, 3]


def double(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return 2 * x


class Faults:
    """A device whose memory is exhausted in whole calls, after they have run."""

    def __init__(self, run):
        self.run = run
        self.left = 0
        self.seen = 0

    def __call__(self, calls, arrays):
        out = jax.block_until_ready(self.run(calls, arrays))
        self.seen += 1
        if not self.left:
            return out
        self.left -= 1
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 64 bytes.")


@pytest.fixture
def faults(monkeypatch):
    made = Faults(FallbackCalls.run_whole)
    monkeypatch.setattr(FallbackCalls, "run_whole", lambda self, arrays: made(self, arrays))
    made.left = 1_000
    return made


def notes(error):
    return " ".join(error.value.__notes__)


def test_what_xla_cannot_compile_runs_unjitted():
    """With the numbers of the function, one warning that has XLA's reason, and a count."""
    f = optimize(compiler=UNKNOWN, on_compile_error="eager")(double)
    with pytest.warns(EagerWarning, match="No such compile option: 'xla_no_such_option'") as told:
        outs = [f(Q) for _ in range(2)]
    np.testing.assert_array_equal(outs, [2 * Q, 2 * Q])
    assert len(told) == 1
    assert 'as `on_compile_error="eager"` asks' in str(told[0].message)
    assert (f.stats.calls, f.stats.eager, f.stats.hits) == (2, 2, 0)
    assert "un-jitted: XLA cannot compile it" in str(f.plan(Q))


def test_without_the_options_the_error_is_that_of_jax():
    """And the call waits for nothing."""
    f = optimize(compiler=UNKNOWN)(double)
    with pytest.raises(JaxRuntimeError, match="No such compile option"):
        f(Q)
    assert f.abstract((Q,), {}, None)[0].fallback is None


def test_what_runs_out_of_memory_runs_in_chunks(faults):
    """From that call on, and a later one does not try the whole again."""
    f = optimize(**CHUNK)(layer)
    with pytest.warns(ChunkWarning, match=r"runs out of memory with m=512") as told:
        outs = [f(Q, W) for _ in range(2)]
    np.testing.assert_allclose(outs, [by_hand(Q, W)] * 2, rtol=1e-4, atol=1e-4)
    assert len(told) == 1
    assert "of 'm' at a time from now on" in str(told[0].message)
    assert faults.seen == 1
    assert "of 'm' at a time, since a call ran out of memory" in str(f.plan(Q, W))


def test_effects_do_not_happen_twice(faults):
    """The error stays, and says why."""
    seen = []

    def reports(x: Float[Array, "n"]) -> Float[Array, "n"]:
        jax.debug.callback(lambda: seen.append(1), ordered=True)
        return 2 * x

    for options in (CHUNK, EAGER):
        seen.clear()
        with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED") as error:
            optimize(**options)(reports)(Q)
        assert seen == [1]
        assert "has effects (OrderedDebugEffect), which would happen twice" in notes(error)


def test_a_call_whose_donated_buffers_are_gone_is_not_repeated(faults):
    """And nothing else reads them."""
    f = optimize(donate="x", **EAGER)(double)
    with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED") as error:
        f(array(Q))
    assert "the donated buffers of 'x' are gone" in notes(error)


def test_what_no_chunk_makes_smaller_stays_an_error():
    """A result of 2**50 bytes, which no machine has."""

    def large(x: Float[Array, "n"]) -> Float[Array, "k"]:
        return jnp.zeros(2**48, jnp.float32) + x[0]

    with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED") as error:
        jax.block_until_ready(optimize(**CHUNK)(large)(Q))
    assert "it has no temporaries besides its arguments and its result" in notes(error)
    assert 'memory="auto"' in notes(error)


@pytest.mark.rest
def test_an_argument_without_a_value_is_not_blamed_on_the_call():
    """What ran out of memory is the program that computes it, whose error JAX passes on."""
    large = np.zeros(1_000_000, np.float32)
    failing = jax.jit(lambda q, x: jnp.median(jnp.abs(q[:, None] - x), axis=1))(large, large)
    for options in (CHUNK, EAGER):
        with pytest.raises(JaxRuntimeError, match="Out of memory") as error:
            optimize(**options)(double)(failing)
        assert "an argument has no value, as what computes it has failed" in notes(error)


@pytest.mark.rest
def test_a_donated_buffer_that_is_there_is_used():
    """XLA had no program that could take it."""
    f = optimize(donate="x", compiler=UNKNOWN, on_compile_error="eager")(double)
    with pytest.warns(EagerWarning, match="There is no program for `donate` to act on"):
        np.testing.assert_array_equal(f(array(Q)), 2 * Q)


@pytest.mark.rest
def test_effects_of_what_was_not_compiled_happen_once():
    """Nothing has run before."""
    seen = []

    def reports(x: Float[Array, "n"]) -> Float[Array, "n"]:
        jax.debug.callback(lambda: seen.append(1), ordered=True)
        return 2 * x

    f = optimize(compiler=UNKNOWN, on_compile_error="eager")(reports)
    with pytest.warns(EagerWarning):
        np.testing.assert_array_equal(f(Q), 2 * Q)
    jax.effects_barrier()
    assert seen == [1]


@pytest.mark.rest
def test_other_shapes_are_tried_as_a_whole(faults):
    """What failed was one kind of call."""
    f = optimize(**CHUNK)(layer)
    with pytest.warns(ChunkWarning):
        f(Q, W)
    faults.left = 0
    np.testing.assert_allclose(f(Q[:7], W), by_hand(Q[:7], W), rtol=1e-4, atol=1e-4)
    assert faults.seen == 2
    assert "runs out of memory is run again in smaller chunks" in str(f.plan(Q[:7], W))


@pytest.mark.rest
def test_it_may_run_unjitted_instead(faults):
    """With the same warning as other calls that do."""
    f = optimize(**EAGER)(layer)
    with pytest.warns(EagerWarning, match="it runs out of memory: RESOURCE_EXHAUSTED"):
        np.testing.assert_allclose(f(Q, W), by_hand(Q, W), rtol=1e-4, atol=1e-4)
    assert f.stats.eager == 1


@pytest.mark.rest
def test_a_call_that_fails_again_says_so(monkeypatch):
    """The second error stays, and the next call begins with the whole."""

    def fail(*_):
        raise JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.")

    monkeypatch.setattr(FallbackCalls, "run_whole", fail)
    monkeypatch.setattr(FallbackCalls, "run_entry", staticmethod(fail))
    f = optimize(**CHUNK)(layer)
    for _ in range(2):
        with (
            pytest.warns(ChunkWarning),
            pytest.raises(JaxRuntimeError) as error,
        ):
            f(Q, W)
        assert "the call was run again in chunks, and ended so" in notes(error)


@pytest.mark.rest
def test_chunks_that_are_too_long_get_shorter(faults):
    """Of the axis that is cut already."""
    f = optimize(chunk={"m": 256}, **CHUNK)(layer)
    with pytest.warns(ChunkWarning) as told:
        np.testing.assert_allclose(f(Q, W), by_hand(Q, W), rtol=1e-4, atol=1e-4)
    width = int(str(told[0].message).split(" of 'm' at")[0].split()[-1])
    assert width < 256


@pytest.mark.rest
@pytest.mark.parametrize("given", [None, 256], ids=["whole", "in chunks"])
def test_what_runs_out_of_memory_while_compiling_gets_chunks_that_suit_caches(
    faults, monkeypatch, given
):
    """The whole is not compiled once more for its bytes, and chunks get shorter."""
    monkeypatch.setattr(FallbackCalls, "_compiled", lambda *_: None)
    monkeypatch.setattr(Chunk, "suiting", lambda *_: 200)
    monkeypatch.setattr(Chunk, "bytes", None)
    f = optimize(chunk=given and {"m": given}, **CHUNK)(layer)
    with pytest.warns(ChunkWarning, match=f"{128 if given else 200} of 'm' at a time"):
        np.testing.assert_allclose(f(Q, W), by_hand(Q, W), rtol=1e-4, atol=1e-4)


@pytest.mark.rest
@pytest.mark.parametrize(
    ("body", "arguments", "reason"),
    [
        (lambda x: jnp.sin(x[:, None] * x) @ x, (Q,), "no named axis to cut"),
        (layer, (Q[:1], W[:1, :1]), "nothing can be cut"),
    ],
    ids=["unnamed", "short"],
)
def test_what_cannot_be_cut_says_why(faults, body, arguments, reason):
    """In a note on the error."""
    with pytest.raises(JaxRuntimeError) as error:
        optimize(**CHUNK)(body)(*arguments)
    assert reason in notes(error)


@pytest.mark.rest
def test_an_operation_that_has_no_chunks_is_named(faults):
    """With its line."""

    def spectrum(q: Float[Array, "m"], w: Float[Array, "n n"]) -> Float[Array, "m"]:
        return jnp.abs(jnp.fft.fft(jnp.sort(q[:, None] * w[0], axis=1), axis=0))[:, 3]

    with pytest.raises(JaxRuntimeError) as error:
        optimize(**CHUNK)(spectrum)(Q, W)
    assert "cannot be cut into chunks: test_fallback_calls.py:" in notes(error)


@pytest.mark.rest
def test_a_gradient_runs_in_chunks(faults):
    """As a program of its own."""

    def loss(w: Float[Array, "n n"], q: Float[Array, "m"]) -> Float[Array, ""]:
        return jnp.sum(jnp.sort(jnp.sin(q[:, None] * w[0]), axis=1)[:, 3])

    f = optimize(**CHUNK)(loss)
    with pytest.warns(ChunkWarning):
        gradient = f.grad(W, Q, wrt="w")
    np.testing.assert_allclose(gradient, jax.grad(loss)(W, Q), rtol=1e-4, atol=1e-3)


@pytest.mark.rest
def test_under_transforms_of_jax_nothing_is_repeated():
    """The outermost program runs, which is not jitney's."""

    def fails(q: Float[Array, "m"]) -> Float[Array, "k"]:
        return jnp.zeros(2**48, jnp.float32) + jnp.sum(q)

    f = optimize(**EAGER)(fails)
    for call in (jax.jit(f), jax.grad(lambda q: jnp.sum(f(q)[:1] ** 2))):
        with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED") as error:
            jax.block_until_ready(call(Q))
        assert "run again" not in " ".join(getattr(error.value, "__notes__", ()))


@pytest.mark.rest
def test_draws_are_those_of_the_whole(faults):
    """The key is the caller's, and is read again."""

    def noisy(key: Key[Array, ""], q: Float[Array, "m"], w: Float[Array, "n n"]):
        return layer(q, w) + jax.random.normal(key, q.shape)

    key = jax.random.key(3)
    f = optimize(**CHUNK)(noisy)
    with pytest.warns(ChunkWarning):
        out = f(key, Q, W)
    np.testing.assert_allclose(out, jax.jit(noisy)(key, Q, W), rtol=1e-4, atol=1e-4)


@pytest.mark.rest
@pytest.mark.parametrize(
    "options",
    [
        {"vmap": "row"},
        {"memory": "1GiB"},
        {"precision": "f64"},
        {"verify": True},
        {"cache": False},
        {"compiler": "fast"},
        {"contracts": False},
        {"auto": True},
    ],
    ids=str,
)
def test_other_options_act_as_usual(faults, options):
    """The call in chunks has them too."""
    f = optimize(**CHUNK, **options)(layer)
    q = Q.reshape(128, 4) if "vmap" in options else Q
    with pytest.warns(ChunkWarning):
        out = f(q, W)
    np.testing.assert_allclose(out.ravel(), by_hand(Q, W), rtol=1e-4, atol=1e-4)


@pytest.mark.rest
def test_a_nan_is_named_in_chunks_too(faults):
    """`debug_nans` looks at the result of the call, whichever way it ran."""

    def root(q: Float[Array, "m"], w: Float[Array, "n n"]) -> Float[Array, "m"]:
        return jnp.log(layer(q, w))

    f = optimize(debug_nans=True, **CHUNK)(root)
    with pytest.warns(ChunkWarning), pytest.raises(NonFiniteError, match="log"):
        f(Q, W)
    with pytest.raises(NonFiniteError, match="log"):
        f(Q, W)
    assert faults.seen == 1


@pytest.mark.rest
def test_threads_are_answered_alike(faults):
    """Each by its own arguments, and none waits for ever."""
    f, barrier = optimize(**CHUNK)(layer), threading.Barrier(4)

    def call(number):
        barrier.wait(60)
        return f(Q + np.float32(number), W)

    with pytest.warns(ChunkWarning), ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(call, range(4)))
    for number, out in enumerate(outs):
        want = by_hand(Q + np.float32(number), W)
        np.testing.assert_allclose(out, want, rtol=1e-3, atol=1e-3)


@pytest.mark.rest
@pytest.mark.parametrize(
    "options",
    [
        {"pad": {"m": "pow2"}},
        {"vmap": "b", "workers": 2},
        {"vmap": "b", "chunk": {"b": "fast"}},
        {"precision": "auto:1e-2"},
        {"shard": {"m": "x"}},
    ],
    ids=str,
)
def test_what_is_not_one_program_is_refused(options):
    """When the function is decorated."""
    for asked in (CHUNK, {"on_compile_error": "eager"}):
        with pytest.raises(OptionError, match="together are not supported yet") as error:
            optimize(**asked, **options)(layer)
        assert error.value.code == "J201"


@pytest.mark.rest
def test_a_program_that_may_fall_back_is_not_kept():
    """The plan says so."""
    f = optimize(cache="program", **CHUNK)(layer)
    assert "programs with `on_memory_error` are not cached yet" in str(f.plan(Q, W))


@pytest.mark.rest
def test_microbatches_get_smaller(faults):
    """Gradients accumulated over them are those of the batch."""

    def loss(w: Float[Array, "n n"], q: Float[Array, "m"]) -> Float[Array, ""]:
        return jnp.mean(jnp.sort(jnp.sin(q[:, None] * w[0]), axis=1)[:, 3])

    f = jitney.accumulate(optimize(**CHUNK)(loss), axis="m", microbatch=256, wrt="w")
    with pytest.warns(ChunkWarning):
        _, gradient = f(W, Q)
    np.testing.assert_allclose(gradient, jax.grad(loss)(W, Q), rtol=1e-4, atol=1e-5)


_LIMITED = """
    import resource, warnings
    import jax, jax.numpy as jnp, numpy as np
    from jaxtyping import Array, Float
    from jitney import optimize

    def farthest(q: Float[Array, "m"], x: Float[Array, "n"]) -> Float[Array, "m"]:
        return jax.lax.cummax(jnp.abs(q[:, None] - x), axis=1)[:, -1]

    f = optimize(on_memory_error="chunk")(farthest)
    q = np.random.default_rng(0).normal(size=8000).astype(np.float32)
    f(q[:9], q[:9])
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)
    try:
        jax.jit(farthest)(q, q).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print(error)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        out = f(q, q)
    print(told[0].message)
    np.testing.assert_array_equal(out[::800], [np.max(np.abs(each - q)) for each in q[::800]])
"""


@pytest.mark.rest
@pytest.mark.skipif(sys.platform != "linux", reason="limits its address space")
def test_a_process_whose_memory_is_exhausted_goes_on():
    """A real allocation fails, beside plain `jax.jit`."""
    script = [sys.executable, "-W", "error", "-c", textwrap.dedent(_LIMITED)]
    run = subprocess.run(script, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "RESOURCE_EXHAUSTED: Out of memory allocating" in run.stdout
    assert "of 'm' at a time from now on" in run.stdout
