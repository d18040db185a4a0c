"""`jitney.profile`: the trace has the user's names, its figures are those of the calls, and it
always ends.
"""

import gzip
import inspect
import json
import threading
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney

pytestmark = pytest.mark.real_xla

DATA = np.linspace(0.0, 1.0, 1000, dtype=np.float32)


@jitney.optimize(chunk={"points": 100})
def misfit(x: Float[Array, "points"], y: Float[Array, "points"]):
    with jax.named_scope("model"):
        modelled = jnp.tanh(x)
    return jnp.sum((modelled - jnp.mean(modelled) - y) ** 2)


@jitney.optimize(pad={"n": "pow2"}, vmap="batch")
def running(x: Float[Array, "n"], w: Float[Array, "n n"]):
    return jnp.cumsum(jnp.sin(w @ x))


@jitney.optimize
def total(x: Float[Array, "n"]):
    return jnp.sum(x)


@jitney.optimize
def wave(x: Float[Array, "n"]):
    with jax.named_scope("crest"):
        return jnp.tanh(x)


@jax.jit
def undecorated(x):
    return jnp.sum(jnp.cos(x))


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> jitney.types.Profile:
    """Three calls of a function in chunks, one of them compiling; its gradient; two padded ones;
    and one that is not decorated.
    """
    # Decorated anew: in another order of the tests, `misfit` itself has been compiled before.
    first = jitney.optimize(chunk={"points": 100})(inspect.unwrap(misfit))
    with jitney.profile(tmp_path_factory.mktemp("traces")) as p:
        results = [first(DATA, DATA) for _ in range(3)]
        results += [first.grad(DATA, DATA), undecorated(DATA)]
        results += [
            running(np.ones((4, n), np.float32), np.ones((n, n), np.float32)) for n in (30, 31)
        ]
    jax.block_until_ready(results)
    return p


def events(p: jitney.types.Profile) -> list[dict]:
    """What Perfetto is given."""
    return json.loads(gzip.decompress(p.perfetto.read_bytes()))["traceEvents"]


def row(p: jitney.types.Profile, name: str):
    (found,) = [each for each in p.programs if each.name == name]
    return found


@pytest.mark.rest
def test_calls_are_those_made(profile: jitney.types.Profile):
    """Of each Program as many as the script calls, a derivative's apart; of a function that is not
    decorated they are unknown.
    """
    assert {each.name: each.calls for each in profile.programs} == {
        "misfit": 3,
        "misfit.grad": 1,
        "running": 2,
        "undecorated": None,
    }


@pytest.mark.rest
def test_runs_are_those_made(profile: jitney.types.Profile):
    """A compiled program ran for each call."""
    assert {each.name: each.runs for each in profile.programs} == {
        "misfit": 3,
        "misfit.grad": 1,
        "running": 2,
        "undecorated": 1,
    }


@pytest.mark.rest
def test_a_program_is_where_the_user_wrote_it(profile: jitney.types.Profile):
    """The place is that of the function."""
    assert row(profile, "misfit").place == str(misfit.core.where)


def test_compiling_is_apart(profile: jitney.types.Profile):
    """The seconds of what was traced and compiled in the block are told from those of the calls."""
    assert row(profile, "misfit").compile_seconds > 0
    assert row(profile, "misfit").host_seconds > 0


def test_a_chunk_has_its_axis_and_pass(profile: jitney.types.Profile):
    """The operations stand in the loop over their chunks: the mean takes one pass, what is made of
    it a second.
    """
    scopes = {each.scope for each in profile.scopes if each.program == "misfit"}
    assert {"chunk points / pass 1", "chunk points / pass 2"} <= scopes


def test_stages_have_their_axes(profile: jitney.types.Profile):
    """Each element of the batch is evaluated at the size of its bucket."""
    assert "vmap batch / mask n" in {
        each.scope for each in profile.scopes if each.program == "running"
    }


def test_perfetto_has_programs_stages_and_axes_as_rows(profile: jitney.types.Profile):
    """They are spans of their own, beside those of the operations that stand in them."""
    (scopes,) = [
        event["pid"]
        for event in events(profile)
        if event.get("args", {}).get("name") == "programs, stages and named axes"
    ]
    names = {event["name"] for event in events(profile) if event.get("pid") == scopes}
    assert {
        "misfit",
        "misfit.grad",
        "running",
        "undecorated",
        "chunk points",
        "pass 1",
        "vmap batch",
        "mask n",
    } <= names


def test_perfetto_has_the_calls_and_their_padding(profile: jitney.types.Profile):
    """The host's row says which function was called, and what was padded and cut around it."""
    count = Counter(
        event.get("name")
        for event in events(profile)
        if "jitney" in event.get("args", ()) or event.get("name") in ("pad", "cut")
    )
    assert (count["misfit"], count["running"], count["pad"], count["cut"]) == (3, 2, 4, 2)


def test_jax_s_own_file_has_the_programs(profile: jitney.types.Profile):
    """XProf reads what JAX wrote, beside ours."""
    (file,) = [each for each in profile.folder.glob("*.trace.json.gz") if each != profile.perfetto]
    assert {"misfit", "running"} <= {
        event.get("name") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    }


def test_seconds_of_a_program_are_those_of_its_operations(profile: jitney.types.Profile):
    """While any of them ran: taken from Perfetto's file, on a grid of nanoseconds."""
    spans = [
        (round(1e3 * event["ts"]), round(1e3 * (event["ts"] + event["dur"])))
        for event in events(profile)
        if event.get("args", {}).get("hlo_module") == "jit_undecorated"
    ]
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    busy = np.zeros(last - first, bool)
    for start, end in spans:
        busy[start - first : end - first] = True
    assert row(profile, "undecorated").device_seconds == pytest.approx(busy.sum() * 1e-9, abs=1e-8)


def test_each_second_is_in_one_scope(profile: jitney.types.Profile):
    """Scopes and operations are two sums of the same, and of one thread they are that of the
    program.
    """
    assert sum(each.seconds for each in profile.scopes) == pytest.approx(
        sum(each.seconds for each in profile.operations)
    )


def test_the_table_has_the_names(profile: jitney.types.Profile):
    """It is read without a viewer; in a notebook too."""
    for text in (str(profile), profile._repr_html_()):
        assert all(
            name in text
            for name in (
                "misfit.grad",
                "chunk points / pass 2",
                "undecorated",
                "device s",
                profile.folder.name,
            )
        )


def test_data_for_json(profile: jitney.types.Profile):
    """All of it goes through JSON."""
    assert json.loads(json.dumps(profile.to_dict()))["programs"][0]["runs"] > 0


def test_names_are_not_in_programs():
    """What XLA compiles, and the key under which it is kept, are the same without them."""
    text = misfit.lower(DATA, DATA).as_text()
    assert "points" not in text
    assert "jitney.optimize" not in text


@pytest.mark.rest
def test_calls_in_other_functions_are_parts_of_those(tmp_path: Path):
    """A Program inside of `jax.jit` is no call of its own, and its operations have its name."""
    with jitney.profile(tmp_path) as p:
        jax.jit(lambda x: jnp.cumsum(wave(x)))(DATA).block_until_ready()
    assert [each.calls for each in p.programs] == [None]
    assert "wave / crest" in {each.scope for each in p.scopes}


@pytest.mark.rest
def test_a_derivative_of_jax_is_no_call(tmp_path: Path):
    """`jax.grad` calls a function with values of its own; its programs ran all the same."""
    with jitney.profile(tmp_path) as p:
        jax.grad(total)(DATA).block_until_ready()
    assert row(p, "total").calls is None
    assert row(p, "total").runs > 0


@pytest.mark.rest
def test_a_stream_has_its_axis_and_pass(tmp_path: Path):
    """What works on a chunk is named after the function, the axis and the pass."""
    with jitney.profile(tmp_path) as p:
        jitney.stream(misfit, x=DATA, y=DATA, chunk={"points": 500}, progress=False)
    assert {"misfit / stream points / pass 1", "misfit / stream points / pass 2"} <= {
        each.scope for each in p.scopes
    }


@pytest.mark.rest
def test_functions_of_one_name_share_a_row(tmp_path: Path):
    """XLA's cache gives both one program where their operations are the same, so that nothing tells
    them apart.
    """

    def plain(x):
        return jnp.sum(x)

    plain.__name__ = "total"
    with jitney.profile(tmp_path) as p:
        assert total(DATA) == jax.jit(plain)(DATA)
    assert (row(p, "total").calls, row(p, "total").runs) == (1, 2)


@pytest.mark.rest
def test_all_threads_are_recorded(tmp_path: Path):
    """Calls of another thread count as well."""
    with jitney.profile(tmp_path) as p:
        thread = threading.Thread(target=total, args=(DATA,))
        thread.start()
        thread.join()
        total(DATA)
    assert row(p, "total").calls == 2


@pytest.mark.rest
def test_an_error_inside_leaves_the_trace(tmp_path: Path):
    """It comes out as it is, and what ran until then is there."""
    p = jitney.profile(tmp_path)

    def fails() -> None:
        with p:
            total(DATA)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert row(p, "total").calls == 1


@pytest.mark.rest
def test_an_error_of_a_call_is_its_own(tmp_path: Path):
    """A call that fails is recorded as one."""
    with jitney.profile(tmp_path) as p, pytest.raises(jitney.errors.ContractError, match="total"):
        total(DATA.reshape(10, 100))
    assert row(p, "total").calls == 1


@pytest.mark.rest
def test_decorated_functions_are_recorded(tmp_path: Path):
    """The last call, one that calls itself among them."""

    @jitney.profile(tmp_path)
    def steps(n: int) -> Array:
        return total(DATA) if n == 1 else steps(n - 1) + total(DATA)

    steps(1)
    steps(3)
    assert row(steps.profile, "total").calls == 3


@pytest.mark.rest
def test_nothing_ran(tmp_path: Path):
    """That is what it says; and before, that there is nothing yet."""
    p = jitney.profile(tmp_path)
    assert str(p) == "profile: nothing is recorded yet"
    with p:
        pass
    assert p.programs == ()
    assert "nothing ran" in str(p)


@pytest.mark.rest
def test_calls_are_as_before_when_it_is_over(tmp_path: Path):
    """The functions that are exchanged meanwhile are put back, after an error too: a call outside
    costs nothing more.
    """
    before = jitney.Program.__call__
    with jitney.profile(tmp_path):
        assert vars(jitney.Program)["__call__"] is not before
    assert jitney.Program.__call__ is before


@pytest.mark.rest
def test_one_profile_at_a_time(tmp_path: Path):
    """JAX has one profiler; the outer profile goes on."""
    with jitney.profile(tmp_path / "outer") as p:
        with (
            pytest.raises(jitney.errors.OptionError, match="one profile at a time"),
            jitney.profile(tmp_path / "inner"),
        ):
            pass
        total(DATA)
    assert row(p, "total").calls == 1


def test_a_profile_that_was_stopped_inside(tmp_path: Path):
    """There is no trace then; and calls are as before."""
    before = jitney.Program.__call__
    with (
        pytest.raises(jitney.errors.OptionError, match="profiler has not written a trace"),
        jitney.profile(tmp_path),
    ):
        jax.profiler.stop_trace()
    assert jitney.Program.__call__ is before


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    """It is said before anything is run."""
    file = tmp_path / "file"
    file.write_text("")
    with (
        pytest.raises(jitney.errors.OptionError, match="the folder cannot be written"),
        jitney.profile(file),
    ):
        pytest.fail("it was entered")


@pytest.mark.rest
def test_a_folder_that_goes_away_is_made_again(tmp_path: Path):
    """The trace is written at the end."""
    folder = tmp_path / "traces"
    with jitney.profile(folder) as p:
        folder.rmdir()
        total(DATA)
    assert row(p, "total").calls == 1


def test_what_is_no_folder():
    """A number is none."""
    with pytest.raises(
        jitney.errors.OptionError, match=r"jitney.profile\(3\): a value of type int is not a folder"
    ):
        jitney.profile(3)  # pyright: ignore
