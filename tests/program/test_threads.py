"""Programs called from many threads at once: one trace and one compile per key, no deadlock, every
error told to everyone.
"""

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney import optimize
from jitney.errors import TraceError
from tests._arrays import array
from tests._monitor import listening
from tests._tracing import count_traces

THREADS = 8
PATIENCE = 120  # seconds after which a test counts as deadlocked


def at_once(*calls):
    """The results or exceptions of calls that start together, each in a thread of its own."""
    barrier = threading.Barrier(len(calls))

    def run(call):
        barrier.wait(PATIENCE)
        return call()

    pool = ThreadPoolExecutor(len(calls))
    futures = [pool.submit(run, call) for call in calls]
    _, late = wait(futures, PATIENCE)
    pool.shutdown(wait=not late)
    assert not late, "deadlock"
    return [future.exception() or future.result() for future in futures]


def work(x):
    for _ in range(10):
        x = 0.5 * jnp.sin(x) + 0.1 * jnp.tanh(jnp.outer(x, x) @ jnp.cos(x))
    return x


X = array(np.linspace(0, 0.1, 7, dtype=np.float32))


@pytest.mark.core("False-options0", "False-options2")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"donate": "y"},
        {"debug_nans": True},
        {"compiler": "fast"},
        {"cache": False},
        {"precision": "f64"},
    ],
)
@pytest.mark.parametrize("warm", [False, True])
def test_one_key_is_traced_and_compiled_once(options, warm):
    """Eight threads, one new set of shapes, in a program that has or has not been called before."""
    body = count_traces(lambda x, y: work(x) + y)
    body.__name__ = "threaded"
    f = optimize(**options)(body)
    if warm:
        f(jnp.ones(2), jnp.ones(2))
    body.traces = 0
    arrays = [jnp.zeros(7) for _ in range(THREADS)]
    before = f.stats
    with listening() as events:
        outs = at_once(*[lambda y=y: f(X, y) for y in arrays])
    assert body.traces == 1
    assert events.count("compile", "threaded") == 1
    for out in outs:
        np.testing.assert_array_equal(out, outs[0])
    now = f.stats
    assert now.traces - before.traces == 1
    assert now.calls - before.calls == THREADS
    assert now.hits - before.hits == THREADS - 1


@pytest.mark.rest
def test_different_keys_go_their_own_ways():
    """Each of four shapes twice, mixed with static values."""
    body = count_traces(lambda x, k: work(x) * k)
    f = optimize(body)
    calls = [lambda n=n, k=k: f(X[:n], k) for n in (3, 5) for k in (1, 2) for _ in range(2)]
    outs = at_once(*calls)
    assert body.traces == 4
    for out, (n, k) in zip(
        outs, [(n, k) for n in (3, 5) for k in (1, 2) for _ in range(2)], strict=True
    ):
        np.testing.assert_allclose(out, work(X[:n]) * k, rtol=2e-5)


def test_keys_in_parallel_do_not_wait_for_each_other():
    """Two traces of one program that can only finish together."""
    meeting = threading.Barrier(2)

    @optimize
    def f(x):
        meeting.wait(PATIENCE)
        return x + 1

    one, two = at_once(lambda: f(jnp.zeros(2)), lambda: f(jnp.zeros(3)))
    assert (one.shape, two.shape) == ((2,), (3,))


@pytest.mark.core("options0")
@pytest.mark.parametrize("options", [{}, {"donate": "x"}, {"cache": False}])
def test_an_error_in_one_thread_reaches_all(options):
    """The first attempt waits until all threads have asked; each then gets the error, and none
    hangs.
    """
    asked = threading.Barrier(THREADS)
    tries = []

    def body(x):
        tries.append(threading.get_ident())
        raise ValueError("no luck")

    f = optimize(**options)(body)

    def call():
        x = jnp.zeros(3) + 0
        asked.wait(PATIENCE)
        return f(x)

    outs = at_once(*[call] * THREADS)
    assert [type(out) for out in outs] == [ValueError] * THREADS
    assert {str(out).splitlines()[0] for out in outs} == {"no luck"}


def test_after_errors_the_next_call_may_succeed():
    """A body that fails three times: the threads go on until one trace works, which then serves the
    rest.
    """
    lock, tries = threading.Lock(), []

    def body(x):
        with lock:
            tries.append(1)
            number = len(tries)
        if number <= 3:
            raise RuntimeError("not yet")
        return x + 1

    outs = at_once(*[lambda: optimize(body)(X)] * THREADS)
    failed = [out for out in outs if isinstance(out, RuntimeError)]
    assert len(failed) == 3
    assert len(tries) == 4


def test_a_tracer_error_is_explained_in_every_thread():
    """Not only in the one that traced first."""
    f = optimize(lambda x: x if x[0] > 0 else -x)
    outs = at_once(*[lambda: f(X)] * THREADS)
    assert [type(out) for out in outs] == [TraceError] * THREADS


def test_eager_fallback_in_every_thread():
    """Right numbers, one warning."""
    f = optimize(on_trace_error="eager")(lambda x: x if x[0] > 0 else -x)
    with pytest.warns(UserWarning, match="un-jitted") as caught:
        outs = at_once(*[lambda: f(X)] * THREADS)
    assert len(caught) == 1
    for out in outs:
        np.testing.assert_array_equal(out, -X)
    assert f.stats.eager == THREADS


@pytest.mark.filterwarnings("ignore::jitney.JitneyWarning")
def test_a_trace_may_fail_when_another_thread_has_turned_to_running_eagerly():
    """Its error is still that of a trace, and the call runs without Jit."""

    def body(x):
        if isinstance(x, jax.core.Tracer):
            next(iter(f._core.entries.values())).turn_eager()  # as the other thread does
        return x if x[0] > 0 else -x

    f = optimize(on_trace_error="eager")(body)
    np.testing.assert_array_equal(f(X), -X)


def test_compile_and_call_at_once():
    """`compile`, `lower` and calls of one key need one trace between them."""
    body = count_traces(work)
    f = optimize(body)
    outs = at_once(*[lambda: f.compile(X), lambda: f.lower(X), lambda: f(X)] * 2)
    assert not [out for out in outs if isinstance(out, BaseException)]
    assert body.traces == 1


@pytest.mark.rest
def test_nested_programs_in_several_threads():
    """Two outer programs and an outer jit share an inner one."""
    inner = optimize(work)
    one, two, three = (
        optimize(lambda x: inner(x) + 1),
        optimize(lambda x: 2 * inner(x)),
        jax.jit(lambda x: inner(x) - 1),
    )
    outs = at_once(*[lambda: one(X), lambda: two(X), lambda: three(X), lambda: inner(X)] * 2)
    expected = np.asarray(work(X))
    for out, wanted in zip(
        outs, [expected + 1, 2 * expected, expected - 1, expected] * 2, strict=True
    ):
        np.testing.assert_allclose(out, wanted, rtol=2e-5)


def test_a_body_that_calls_its_own_program_holds_its_trace():
    """The recursion ends the inner traces, not the outer one: a thread that waits for the outer key
    is not let through early.
    """
    inside, traced = threading.Event(), []

    @optimize
    def halve(x):
        traced.append(x.shape)
        if x.shape[0] == 1:
            return x
        out = halve(x[: x.shape[0] // 2])
        if x.shape[0] == 8:
            inside.set()
            never.wait(0.2)
        return out * 2

    never = threading.Event()

    def second():
        inside.wait(PATIENCE)
        return halve(jnp.ones(8))

    outs = at_once(lambda: halve(jnp.ones(8)), second)
    np.testing.assert_array_equal(outs[0], [8])
    np.testing.assert_array_equal(outs[1], [8])
    assert sorted(traced) == [(1,), (2,), (4,), (8,)]


def test_a_program_inside_a_callback():
    """The host side of a running program calls another, and that same one with other shapes."""
    helper = optimize(lambda x: x * 2)

    def host(x):
        return np.asarray(helper(np.asarray(x))) + (
            0 if x.shape[0] == 1 else float(f(np.ones(1, np.float32))[0])
        )

    @optimize
    def f(x):
        return jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    (out,) = at_once(lambda: np.asarray(f(np.ones(3, np.float32))))
    np.testing.assert_array_equal(out, [4, 4, 4])


def test_counts_add_up_over_threads():
    """A hundred warm calls from each of eight threads."""
    f = optimize(lambda x: x + 1)
    f(X)

    def many():
        for _ in range(100):
            f(X)

    at_once(*[many] * THREADS)
    assert f.stats.calls == 1 + 100 * THREADS
    assert f.stats.hits == 100 * THREADS
