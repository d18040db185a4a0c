"""Choices that another process finds: what they are found by, and what is not believed."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jitney import optimize
from jitney._jax.compile_cache.own_entries import UNFINISHED, read, write
from jitney._program.auto import choice_record
from tests.program.auto.test_auto_calls import FAST_64, MANY, ROWS, W, auto_line, by_hand, learnt

AUTO = {"vmap": "row", "auto": True}
FIRST = [(64, "threads"), (64, "")]
TRIAL = {"width": 64, "carrier": "", "share": 0.5, "has_lost": False}


def fresh():
    """The same function as another process has it: no program is shared."""

    def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.exp(-w * w) - y

    return residual


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the records."""
    monkeypatch.setattr(choice_record, "folder", lambda name: tmp_path / name)
    return tmp_path / "auto" / "residual"


def only(folder):
    (path,) = folder.iterdir()
    return path


def test_the_next_process_starts_with_the_choice(machine, folder):
    """Its first call runs so, and the plan says where it comes from."""
    machine.rates = FAST_64
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    machine.runs.clear()
    f = optimize(**AUTO)(fresh())
    np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert machine.runs == []
    assert auto_line(f, W, ROWS) == (
        "64 at a time, as an earlier process has measured: 1.6e+04 ms, whole 1.6e+05 ms"
    )


def test_a_search_that_was_put_off_goes_on_in_the_next_process(machine, folder):
    """It tries nothing before its calls have taken ten times what the next step costs, and then
    what was not tried, to the end of the search.
    """
    run = machine.compile

    def slow_compile(way, elements):
        machine.compiling = 1500.0 if str(way) == "64 at a time in threads" else 100.0
        run(way, elements)

    machine.compiling, machine.compile = 100.0, slow_compile
    f = optimize(**AUTO)(fresh())
    for _ in range(60):
        f(W, ROWS)
    assert "given up for now" in auto_line(f, W, ROWS)
    data = json.loads(read(only(folder)))
    cost = data["next_cost"]
    assert data["spent"] > 1500.0
    assert [(trial["width"], trial["carrier"]) for trial in data["trials"]] == FIRST
    machine.runs.clear()

    g, calls = optimize(**AUTO)(fresh()), 0
    while not machine.tried:
        told = "nothing is tried" if calls == 0 else "given up for now, as an earlier process did"
        assert calls < 400
        assert told in auto_line(g, W, ROWS) or calls * 160 >= 10 * cost
        g(W, ROWS)
        calls += 1
    assert (calls - 1) * 160 > 10 * cost
    machine.compile = run
    for _ in range(400):
        g(W, ROWS)
    assert machine.tried[0] == "whole in threads"
    assert "64 at a time in threads" not in machine.tried
    assert json.loads(read(only(folder)))["spent"] == 0.0


def test_threads_that_were_chosen_beside_a_chunk_by_hand_are_those_of_the_next_process(
    machine, folder
):
    """The width is given, and no other one of a record is taken."""
    machine.rates = {"whole in threads": 0.1}
    by_hand_16 = AUTO | {"chunk": {"row": 16}}
    learnt(optimize(**by_hand_16)(fresh()), W, ROWS)
    f = optimize(**by_hand_16)(fresh())
    np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert auto_line(f, W, ROWS).startswith("whole in threads, as an earlier process has measured")

    says(width=64)(only(folder))
    g = optimize(**by_hand_16)(fresh())
    g(W, ROWS)
    assert "learns" in auto_line(g, W, ROWS)


def test_no_way_of_an_earlier_search_is_taken_that_workers_refuse(machine, folder):
    """A file may say that threads shared LAPACK of many numbers, in which XLA may hang."""

    def body():
        def residual(y: Float[Array, "m m"]) -> Float[Array, "m m"]:
            return jnp.linalg.inv(y)

        return residual

    rows = np.tile(2 * np.eye(8, dtype=np.float32), (160, 1, 1))
    machine.compiling = 100.0
    f = optimize(**AUTO)(body())
    while not folder.exists():
        f(rows)
    trials = [{"width": None, "carrier": "threads", "share": 0.1, "has_lost": False}]
    says(trials=trials, spent=1.0, next_cost=0.0)(only(folder))
    machine.runs.clear()

    g = optimize(**AUTO)(body())
    for _ in range(60):
        np.testing.assert_allclose(g(rows), rows / 4, rtol=1e-5)
    assert "whole in threads: it runs" in auto_line(g, rows)
    assert "whole in threads" not in machine.tried


def test_that_nothing_was_gained_is_handed_on_too(machine, folder):
    """Nobody tries it again."""
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    machine.runs.clear()
    f = optimize(**AUTO)(fresh())
    for _ in range(MANY):
        f(W, ROWS)
    assert machine.tried == []
    assert auto_line(f, W, ROWS).startswith("whole, as an earlier process has measured")


@pytest.mark.rest
def test_sizes_of_a_bucket_share_a_record(machine, folder):
    """160 and 140 are counted as 256; 100 is not."""
    machine.rates = FAST_64
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    f = optimize(**AUTO)(fresh())
    f(W, ROWS[:140])
    f(W, ROWS[:100])
    assert auto_line(f, W, ROWS[:140]).startswith("64 at a time, as an earlier process")
    assert "learns" in auto_line(f, W, ROWS[:100])


def another_body():
    def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.exp(-w * w) + y

    return residual


@pytest.mark.core("body", "exact", "precision")
@pytest.mark.parametrize(
    "other",
    [
        lambda: optimize(**AUTO)(another_body()),
        lambda: optimize(vmap="row", auto="exact")(fresh()),
        lambda: optimize(**AUTO, compiler="fast")(fresh()),
        lambda: optimize(**AUTO, workers=2)(fresh()),
        lambda: optimize(**AUTO, precision="bf16-all")(fresh()),
    ],
    ids=["body", "exact", "compiler", "workers", "precision"],
)
def test_a_record_is_of_one_program_and_its_options(machine, folder, other):
    """Another body of the same name, or another option, learns by itself."""
    machine.rates = FAST_64
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    f = other()
    f(W, ROWS)
    assert "earlier process" not in auto_line(f, W, ROWS)


@pytest.mark.core("device", "constant")
@pytest.mark.parametrize("change", ["cores", "device", "constant"])
def test_a_record_is_of_one_machine_and_of_one_set_of_constants(
    machine, folder, monkeypatch, change
):
    """The number of cores, the kind of device, and the arrays that the body has."""

    def made(constant):
        def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
            return jnp.exp(-w * w) - y * constant

        return residual

    machine.rates = FAST_64
    learnt(optimize(**AUTO)(made(np.arange(5, dtype=np.float32))), W, ROWS)
    constant = np.arange(5, dtype=np.float32) + (change == "constant")
    if change != "constant":
        told = [*choice_record._surroundings(), change]
        monkeypatch.setattr(choice_record, "_surroundings", lambda: told)
    f = optimize(**AUTO)(made(constant))
    f(W, ROWS)
    assert "earlier process" not in auto_line(f, W, ROWS)


def damaged(path):
    path.write_bytes(path.read_bytes()[:-7])


def empty(path):
    path.write_bytes(b"")


def readable_by_a_group(path):
    path.chmod(0o620)


def says(**changes):
    def change(path):
        data = json.loads(read(path)) | changes
        path.unlink()
        assert write(path, json.dumps(data).encode())

    return change


def says_a_list(path):
    path.unlink()
    assert write(path, b"[64]")


@pytest.mark.core("damaged", "readable_by_a_group", "says_a_list", "change0", "change5")
@pytest.mark.parametrize(
    "change",
    [
        damaged,
        empty,
        readable_by_a_group,
        says_a_list,
        says(width=17),
        says(width=True),
        says(width="64"),
        says(carrier=True),
        says(carrier=["threads"]),
        says(format=1),
        says(kind="directions"),
        says(kind="memory", axis="row"),
        says(kind="all"),
        says(axis=3),
        says(whole="long"),
        says(chosen=-1.0),
        says(whole=float("nan")),
        says(spent=-1.0),
        says(spent=float("inf")),
        says(spent=None),
        says(next_cost=-1.0),
        says(next_cost="soon"),
        says(trials=None),
        says(trials=[3]),
        says(trials=[TRIAL | {"width": 17}]),
        says(trials=[TRIAL | {"carrier": "fork"}]),
        says(trials=[TRIAL | {"share": float("nan")}]),
        says(trials=[TRIAL | {"has_lost": 1}]),
    ],
)
def test_what_cannot_be_believed_is_ignored(machine, folder, change):
    """A damaged file, one that others can write, and content of another form."""
    machine.rates = FAST_64
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    change(only(folder))
    f = optimize(**AUTO)(fresh())
    np.testing.assert_allclose(f(W, ROWS), by_hand(W, ROWS), rtol=1e-6, atol=1e-6)
    assert "learns" in auto_line(f, W, ROWS)


def test_threads_of_a_record_are_not_started_where_workers_refuse(machine, folder):
    """A file may say so, and the program decides."""
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    says(carrier="threads")(only(folder))

    def residual(w: Float[Array, "n"], y: Float[Array, "n"]) -> Float[Array, "n"]:
        return jnp.exp(-w * w) - y

    f = optimize(**AUTO)(residual)
    f(W, ROWS)
    assert auto_line(f, W, ROWS).startswith("whole in threads, as an earlier process")

    g = optimize(**AUTO, workers=2)(residual)
    g(W, ROWS)
    assert "earlier process" not in auto_line(g, W, ROWS)


def test_files_are_of_their_user_alone_and_replaced_as_a_whole(machine, folder):
    """Mode 0600 in a folder of mode 0700, and nothing unfinished beside it."""
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    assert only(folder).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_a_killed_process_has_left_is_deleted(machine, folder):
    """By the next one that writes this record; what belongs to another one is left."""
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    path = only(folder)
    path.unlink()
    left, other = (
        path.with_name(f"{name}-123-456{UNFINISHED}") for name in (path.name, "other-cache")
    )
    for each in (left, other):
        each.write_bytes(b"half")
    learnt(optimize(**AUTO)(fresh()), W, ROWS)
    assert {*folder.iterdir()} == {path, other}


def test_without_a_folder_it_learns_for_this_process(machine, monkeypatch):
    """As with a folder of JAX's own, or `cache=False`."""
    monkeypatch.setattr(choice_record, "folder", lambda name: None)
    machine.rates = FAST_64
    f = optimize(**AUTO)(fresh())
    learnt(f, W, ROWS)
    assert auto_line(f, W, ROWS).startswith("64 at a time: ")


def test_cache_false_writes_nothing(machine, folder):
    """Nor does it read."""
    learnt(optimize(**AUTO, cache=False)(fresh()), W, ROWS)
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_no_error(machine, tmp_path, monkeypatch):
    """A file stands where it should be."""
    (tmp_path / "auto").write_text("")
    monkeypatch.setattr(choice_record, "folder", lambda name: tmp_path / name)
    learnt(optimize(**AUTO)(fresh()), W, ROWS)


def test_a_function_without_records_is_not_traced_for_them(machine, folder):
    """The first call traces once."""
    from tests._tracing import count_traces

    body = count_traces(fresh())
    optimize(vmap={"row": {"y": 0}}, auto=True)(body)(W, ROWS)
    assert body.traces == 1


SCRIPT = """
import sys
import numpy as np
import jax.numpy as jnp
import jitney
from jitney._program.auto import auto_calls, call_times
jitney.configure(cache_dir=sys.argv[1], auto=True)
now = [0.0]
call_times.clock = lambda: now[0]
run = auto_calls.AutoCalls.run_way
def timed(calls, way, arrays):
    import jax
    out = jax.block_until_ready(run(calls, way, arrays))
    now[0] += (0.1 if str(way) == "64 at a time" else 1.0) * len(arrays[0])
    return out
auto_calls.AutoCalls.run_way = timed
auto_calls.AutoCalls.compile_seconds = lambda calls, _: 10.0
@jitney.optimize(vmap={"row": {"y": 0}})
def double(y):
    return 2 * y
y = np.ones((200, 3), np.float32)
for _ in range(int(sys.argv[2])):
    out = double(y)
assert (np.asarray(out) == 2).all()
print(next(line["why"] for line in double.plan(y).to_dict()["decisions"] if line["name"] == "auto"))
"""


def start(folder, calls):
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), str(calls)],
        capture_output=True,
        text=True,
        env=kept,
        check=True,
    )
    return done.stdout


@pytest.mark.rest
def test_two_processes_that_learn_at_once_leave_one_record(tmp_path):
    """Each replaces the file as a whole; a third process starts with it."""
    with ThreadPoolExecutor(2) as pool:
        outs = [*pool.map(lambda _: start(tmp_path, MANY), range(2))]
    assert all("64 at a time" in out for out in outs)
    records = [*(tmp_path / "auto" / "double").iterdir()]
    assert len(records) == 1
    assert "as an earlier process has measured" in start(tmp_path, 1)
