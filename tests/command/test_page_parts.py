"""What the page draws: a flame of spans as they were recorded, sizes against buckets, bytes by
program, plans of decorated functions.
"""

import json
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jitney
from jitney._command.launch import Recording
from jitney._command.page.axis_sizes import axis_sizes
from jitney._command.page.decorated import collect_facts, function_facts
from jitney._command.page.flame import flame
from jitney._command.page.memory import bytes_of, memory
from jitney._diagnosis.counters.counters import COMPILED, LOWERED, TRACED
from tests.command._scripts import plainly, watched

FIT = str(Path("/home/somebody/fit.py"))
MAIN, CALLED = (
    [(FIT, 20, "main", 9), (FIT, 30, "<module>", 1)],
    [(FIT, 4, "train", 3), (FIT, 20, "main", 9), (FIT, 30, "<module>", 1)],
)


def span(event, name, start, end, frames=CALLED, thread=1):
    return {
        "kind": "span",
        "event": event,
        "name": name,
        "start": start,
        "end": end,
        "frames": frames,
        "thread": thread,
    }


def found(node, *names):
    for name in names:
        node = next(each for each in node["inside"] if each["name"] == name)
    return node


def test_a_flame_stands_on_the_functions_of_the_program():
    """From the outermost on; equal spans add up, of each thread its own, and one that came from the
    cache is read.
    """
    told = flame(
        [
            span(TRACED, "f", 0.0, 1.0),
            span(LOWERED, "jit(f)", 1.0, 1.5),
            span(COMPILED, "jit(f)", 1.5, 3.5),
            span(TRACED, "f", 4.0, 4.5, thread=2),
            {"kind": "hit", "thread": 2},
            span(COMPILED, "jit(f)", 5.0, 5.25, thread=2),
            span(COMPILED, "jit(g)", 6.0, 7.0, MAIN),
        ]
    )
    assert told["seconds"] == 5.25
    assert [
        (each["name"], each["seconds"])
        for each in found(told, "fit.py", "main (fit.py:9)")["inside"]
    ] == [
        ("train (fit.py:3)", 4.25),
        ("g", 1.0),
    ]
    phases = found(told, "fit.py", "main (fit.py:9)", "train (fit.py:3)", "f")["inside"]
    assert [(each["phase"], each["seconds"], each["times"]) for each in phases] == [
        ("compile", 2.0, 1),
        ("trace", 1.5, 2),
        ("lower", 0.5, 1),
        ("cache read", 0.25, 1),
    ]


def test_what_is_compiled_while_something_is_traced_lies_inside():
    """Its seconds are those of the trace too, and count once in the whole; a `jit` inside, which
    has no seconds, is named.
    """
    said = (
        "TRACING CACHE MISS at fit.py:4 (train) because:\n  for inner defined at"
        " /home/somebody/fit.py:2\n  never seen function:"
    )
    events = [
        {"kind": "explained", "text": said, "thread": 1},
        span(LOWERED, "jit(iota)", 0.5, 1.0),
        span(COMPILED, "jit(iota)", 1.0, 1.5),
        span(TRACED, "f", 0.0, 2.0),
    ]
    told = flame(events)
    trace = found(told, "fit.py", "main (fit.py:9)", "train (fit.py:3)", "f", "trace")
    assert told["seconds"] == trace["seconds"] == 2.0
    inside = {(each["name"], each["phase"], each["seconds"]) for each in trace["inside"]}
    assert inside == {("iota", "lower", 0.5), ("iota", "compile", 0.5)}
    assert trace["jits"] == {"inner": 1}


def program(function, *shapes):
    return {"function": function, "line": "fit.py:4 (train)", "shapes": list(shapes)}


def test_sizes_that_change_together_are_one_axis():
    """Of what nobody decorated: 5, 6 and 9 rows would share the buckets 8 and 16, 32 rows for 20;
    what stays the same is not an axis.
    """
    programs = [program("f", f"float32[{n},3]", f"float32[{n}]", "int32[]") for n in (5, 6, 9)] + [
        program("g", "float32[4]")
    ]
    (rows,) = axis_sizes({"decorated": [], "programs": programs})
    assert (rows.function, rows.axis) == (
        "f, fit.py:4 (train)",
        "array 0 axis 0 and array 1 axis 0",
    )
    assert (rows.times, rows.buckets) == ({5: 1, 6: 1, 9: 1}, {5: 8, 6: 8, 9: 16})
    assert rows.waste == 32 / 20 - 1


def test_bytes_of_shapes_are_numpys():
    """Of each dtype that has a size in whole bytes; all else is unknown."""
    for dtype in ("float32", "int8", "bool", "complex64", "uint16", "float64"):
        assert (
            bytes_of([f"{dtype}[3,4]", f"{dtype}[], weak_type=True"]) == np.zeros(13, dtype).nbytes
        )
    assert bytes_of(["bfloat16[5]"]) == 10
    assert bytes_of([]) == 0
    assert [bytes_of(each) for each in (None, ["key<fry>[]"], ["int4[2]"], ["float32[n]"])] == [
        None
    ] * 4


def test_programs_that_are_not_decorated_have_unknown_bytes():
    """Their arguments are known by their shapes; results and temporaries are not 0."""
    (row,) = memory({"decorated": [], "programs": [program("f", "float32[5]")] * 2})
    assert (row["arguments"], row["outputs"], row["temporaries"]) == (20, None, None)


def test_a_padded_function_tells_its_sizes_buckets_plan_and_bytes():
    """Five calls of three sizes went into the buckets 8 and 32, as the plan of the last trace says;
    bytes are those of the buckets.
    """

    @jitney.optimize(pad={"rows": "pow2"}, verify=False)
    def scaled(x: Float[Array, "rows"]) -> Float[Array, "rows"]:
        return 2 * x

    for n in (5, 6, 5, 20, 6):
        scaled(jnp.ones(n))
    with jitney.watch() as seen:
        row = function_facts(scaled.core, time.perf_counter() + 60)
    assert seen.compiles + seen.cache_hits == 0
    assert (row["calls"], row["traces"]) == (5, 2)
    assert row["sizes"] == {"rows": [[5, 2, 8], [6, 2, 8], [20, 1, 32]]}
    assert row["counted"] == {"rows": "calls"}
    assert row["plan"]["of"] == "x: float32[20]"
    assert row["plan"]["drawing"].startswith("<svg ")
    assert {"name": "fill", "taken": True} in [
        {name: line[name] for name in ("name", "taken")} for line in row["plan"]["lines"]
    ]
    assert [
        (each["sizes"], each["arguments"] >= 4 * n, each["outputs"])
        for each, n in zip(row["programs"], (8, 32), strict=True)
    ] == [
        ("rows=8", True, 4 * 8),
        ("rows=32", True, 4 * 32),
    ]
    late = function_facts(scaled.core, time.perf_counter())
    assert late["plan"]["unknown"]
    assert [each["temporaries"] for each in late["programs"]] == [None, None]
    assert scaled.stats.traces == 2


def test_an_unpadded_function_tells_the_sizes_it_was_traced_for():
    """Without buckets, and what its results take beside what was donated."""

    @jitney.optimize(donate="x", verify=False)
    def doubled(x: Float[Array, "rows 3"]) -> Float[Array, "rows 3"]:
        return 2 * x

    for n in (4, 4, 7):
        doubled(jnp.ones((n, 3)))
    with jitney.watch() as seen:
        row = function_facts(doubled.core, time.perf_counter() + 60)
    assert seen.compiles + seen.cache_hits == 0
    assert row["sizes"] == {"rows": [[4, 1, None], [7, 1, None]]}
    assert row["counted"] == {"rows": "traces"}
    assert [(each["arguments"], each["outputs"]) for each in row["programs"]] == [
        (4 * 12, 0),
        (4 * 21, 0),
    ]


def test_a_plan_that_would_compile_is_told_as_it_was_traced():
    """What is measured to choose it is not measured again at the end; nor is a body run whose world
    is gone.
    """

    @jitney.optimize(chunk={"rows": "auto"}, memory="1GiB", verify=False)
    def cut(x: Float[Array, "rows"]) -> Float[Array, "rows"]:
        return jnp.tanh(x)

    world = {"gone": 2.0}

    @jitney.optimize(pad={"rows": "pow2"}, verify=False)
    def padded(x: Float[Array, "rows"]) -> Float[Array, "rows"]:
        return x * world["gone"]

    for each in (cut, padded):
        each(jnp.ones(5))
    del world["gone"]
    with jitney.watch() as seen:
        row = function_facts(cut.core, time.perf_counter() + 60)
    assert seen.compiles == 0
    assert "jit" in {line["name"] for line in row["plan"]["lines"]}
    failed = function_facts(padded.core, time.perf_counter() + 60)
    assert failed["plan"]["lines"] == []
    assert "gone" in failed["plan"]["unknown"]


@pytest.mark.rest
def test_a_look_takes_those_that_were_traced_and_records_nothing():
    """What is compiled for the look is no part of what the program did."""

    @jitney.optimize(verify=False)
    def looked_at(x: Float[Array, "n"]) -> Float[Array, "n"]:
        print("traced")
        return x + 1

    looked_at(jnp.ones(3))
    recording = Recording()
    recording.listen()
    try:
        collect_facts(recording)
        assert "looked_at" in {each["name"] for each in recording.decorated}
        assert recording.events == []
        with recording.suspend():
            recording.add(kind="hit")
        recording.add(kind="hit")
        assert len(recording.events) == 1
    finally:
        recording.stop()


DECORATED = """
import jax, jax.numpy as jnp, jitney
from jaxtyping import Array, Float
@jitney.optimize(pad={"n": "pow2"})
def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    print("the body is traced")
    return jnp.sum(x * x)
for n in (5, 6, 20):
    print(float(total(jnp.ones(n))))
raise SystemExit(3)
"""


@pytest.mark.rest
def test_a_run_tells_of_decorated_functions(tmp_path):
    """The program prints and ends as it does plainly, though its functions are asked for their
    plans when it is over.
    """
    (tmp_path / "sums.py").write_text(DECORATED)
    plain, seen = (
        plainly(tmp_path, "sums.py"),
        watched(tmp_path, "sums.py", report=str(tmp_path / "out.json")),
    )
    assert (seen.status, seen.out) == (plain.status, plain.out)
    assert seen.status == 3
    told = json.loads((tmp_path / "out.json").read_text())
    (row,) = told["decorated"]
    assert row["sizes"] == {"n": [[5, 1, 8], [6, 1, 8], [20, 1, 32]]}
    assert found(told["flame"], "sums.py", "total")["seconds"] > 0
    assert row["plan"]["lines"]
