"""`bench`: sizes as they are typed, arguments as annotations say, exponents as a reference has
them, and a picture that is whole.
"""

import json
import os
import re
import sys
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitney._command.arguments import main
from jitney._command.bench import inputs, measuring
from jitney._command.bench.command import worth_trying
from jitney._command.bench.growth import fit_exponents, growths
from jitney._command.bench.inputs import fill_arguments, maker
from jitney._command.bench.measuring import ProgramMemory, SizeRun
from jitney._command.bench.parsing import read_sizes
from jitney._command.bench.plot import svg
from jitney._command.bench.target import find

SCRIPT = """
import equinox as eqx, jax, jax.numpy as jnp, jitney
from jaxtyping import Array, Bool, Complex, Float, Int32, Key
class Line(eqx.Module):
    slope: jax.Array
def outer(x: Float[Array, "n"], y: Float[Array, "k"], order: int = 1) -> Float[Array, "n k"]:
    return x[:, None] * y**order
@jitney.optimize(pad={"n": "pow2"})
def mean(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.mean(x * x)
def every(key: Key[Array, ""], x: Float[Array, "n"], i: Int32[Array, "n 2"], b: Bool[Array, "n"], c: Complex[Array, "n"], t: float): ...
def moved(line: Line, x: Float[Array, "n"]):
    return line.slope * x
def lines(n):
    return {"line": Line(jnp.ones(n))}
def bare(x): ...
def told(x: Float[Array, "..."]): ...
def counted(count: int): ...
number = 3
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A file with functions, named as none of the modules here."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "benched_here", raising=False)
    (tmp_path / "benched_here.py").write_text(SCRIPT)
    yield str(tmp_path / "benched_here.py")
    sys.modules.pop("benched_here", None)


@pytest.mark.parametrize(
    ("typed", "sizes"),
    [
        ("n=8", (8,)),
        ("n=30,10,20", (10, 20, 30)),
        ("n=64:1024", (64, 128, 256, 512, 1024)),
        ("n=1e3:1e6", (1000, 2154, 4642, 10000, 21544, 46416, 100000, 215443, 464159, 1000000)),
        ("n=1:100:3", (1, 10, 100)),
        ("n=2:4:9", (2, 3, 4)),
    ],
)
def test_sizes_are_a_list_or_a_range(typed, sizes):
    """Powers of two from one to another, and else ten sizes, evenly by their logarithms."""
    assert read_sizes([typed]) == {"n": sizes}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["script:f:g"], "'script:f:g' is not there|there is no module"),
        (["missing.py:f"], "'missing.py' is not there"),
        (["no_such_module:f"], "there is no module 'no_such_module'"),
        (["outer"], "it names no function"),
        (["{}:absent"], "'absent' is not in benched_here"),
        (["{}:number"], "'number' is not a function"),
        (["{}:outer", "--sizes", "n=0"], "'0' is not a size"),
        (["{}:outer", "--sizes", "n=1.5"], "'1.5' is not a size"),
        (["{}:outer", "--sizes", "n=9:3"], "a range goes upwards"),
        (["{}:outer", "--sizes", "n"], "it names no axis, or no sizes"),
        (["{}:outer", "--sizes", "n=1", "--sizes", "n=2"], "has sizes already"),
        (["{}:outer", "--sizes", "n=1:1e6:900", "--sizes", "k=1,2"], "more than 1000 runs"),
        (["{}:outer", "--sizes", "n=4"], "the axis 'k' has no size"),
        (["{}:outer", "--sizes", "m=4"], "has no axis 'm'"),
        (["{}:outer", "--set", "power=4"], "has no parameter 'power'"),
        (["{}:outer", "--set", "4"], "--set '4' is not understood"),
        (["{}:outer", "--out", "x.png"], "--out 'x.png' is not a picture"),
        (["{}:outer", "--seconds", "0"], "--seconds 0 is not a time"),
        (["{}:bare"], "'x' has no annotation that says its shape"),
        (["{}:told"], "names not all of its axes"),
        (["{}:counted"], "'count' is static"),
        (
            ["{}:moved", "--sizes", "n=4"],
            "'line' is a .*Line, whose arrays no annotation describes",
        ),
        (["{}:moved", "--arguments", "lines"], "takes n, which has no size"),
        (["{}:moved", "--arguments", "number"], "--arguments number is not a function"),
        (["{}:moved", "--sizes", "n=4", "--arguments", "bare"], "takes x, which has no size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_measured_has_status_2(typed, said, script, capsys):
    """With what is wrong, the rule and the fix, before anything is compiled."""
    assert main(["bench", *(word.format(script) for word in typed)]) == 2
    shown = capsys.readouterr()
    assert re.search(said, shown.err)
    assert "\nFix: " in shown.err
    assert shown.out == ""


def test_a_file_whose_settings_come_too_late_is_refused(script, monkeypatch, capsys):
    """JAX has read its environment before the file sets it, so the figures would be of other
    settings.
    """
    monkeypatch.setenv("JAX_ENABLE_X64", "")  # so that what was there, or was not, comes back
    monkeypatch.delenv("JAX_ENABLE_X64")
    with open(script, "a") as file:  # noqa: PTH123
        file.write("import os\nos.environ['JAX_ENABLE_X64'] = '1'\n")
    assert main(["bench", f"{script}:outer"]) == 2
    del os.environ["JAX_ENABLE_X64"]
    assert "sets JAX_ENABLE_X64 in os.environ" in capsys.readouterr().err


def test_arguments_are_made_from_annotations(script):
    """Shapes by the axes, dtypes by the annotations, numbers where they are fit for roots and
    indices, the same each time.
    """
    make = maker(find(f"{script}:every"), {}, None)
    first, second = (fill_arguments(make.abstract({"n": 50})).arguments for _ in range(2))
    shapes = {name: (value.shape, str(value.dtype)) for name, value in first.items() if name != "t"}
    assert shapes == {
        "key": ((), "key<fry>"),
        "x": ((50,), "float32"),
        "i": ((50, 2), "int32"),
        "b": ((50,), "bool"),
        "c": ((50,), "complex64"),
    }
    assert 0 <= first["x"].min() < first["x"].max() < 1
    assert set(np.unique(first["i"])) <= set(range(10))
    assert isinstance(first["t"], float)
    assert all(np.array_equal(first[name], second[name]) for name in "xibc")


def test_sizes_are_measured_told_and_drawn(script, tmp_path, capsys):
    """Bytes are those of the shapes, each size is one program, and times are there for each; the
    page holds the picture.
    """
    typed = [
        f"{script}:outer",
        "--sizes",
        "n=16:64",
        "--sizes",
        "k=4",
        "--set",
        "order=2",
        "--seconds",
        "0.01",
        "--json",
    ]
    assert main(["bench", *typed, "--out", str(tmp_path / "out.html")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["called"] == "under jax.jit, order static"
    assert [run["sizes"] for run in told["runs"]] == [{"n": n, "k": 4} for n in (16, 32, 64)]
    assert [run["programs"] for run in told["runs"]] == [1, 1, 1]
    assert [run["memory"]["arguments"] for run in told["runs"]] == [
        4 * (n + 4) for n in (16, 32, 64)
    ]
    assert [run["memory"]["outputs"] for run in told["runs"]] == [4 * n * 4 for n in (16, 32, 64)]
    assert all(
        len(run["seconds"]) >= 5 and min(run["seconds"]) > 0 and run["compile_seconds"] > 0
        for run in told["runs"]
    )
    text = (tmp_path / "out.html").read_text()
    assert "<svg" in text
    assert "n=64 k=4" in text


@pytest.mark.rest
def test_sizes_of_one_bucket_share_a_program(script, capsys):
    """5 and 7 rows are padded to 8, whose bytes they take; a table says which were compiled."""
    assert main(["bench", f"{script}:mean", "--sizes", "n=5,7,9", "--seconds", "0.01"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("n=")]
    assert [row[0] for row in rows] == ["n=5", "n=7", "n=9"]
    assert [row[1] == "shared" for row in rows] == [False, True, False]


@pytest.mark.rest
def test_modules_come_from_a_function_beside(script, capsys):
    """It gets the sizes that its parameters name."""
    typed = [
        f"{script}:moved",
        "--sizes",
        "n=4,8",
        "--arguments",
        "lines",
        "--seconds",
        "0.01",
        "--json",
    ]
    assert main(["bench", *typed]) == 0
    assert [run["memory"]["arguments"] for run in json.loads(capsys.readouterr().out)["runs"]] == [
        2 * 4 * 4,
        2 * 4 * 8,
    ]


@pytest.mark.rest
def test_what_does_not_fit_ends_the_range(script, monkeypatch, capsys):
    """Status 1, with the sizes below it measured and told."""
    monkeypatch.setattr(measuring, "free_bytes", lambda: 4 * 100)
    assert (
        main(
            ["bench", f"{script}:outer", "--sizes", "n=8,64", "--sizes", "k=4", "--seconds", "0.01"]
        )
        == 1
    )
    shown = capsys.readouterr()
    assert "n=8 k=4" in shown.out
    assert "n=64" not in shown.out
    assert (
        "n=64 k=4 does not fit: its results and temporaries take 1 KiB, of 400 B that may be taken."
        in shown.err
    )


def test_exponents_are_those_of_a_power_law():
    """3 n^2 sqrt(m) has the exponents 2 and a half; one axis alone agrees with NumPy's polynomials,
    spread included.
    """
    exact = fit_exponents(
        [({"n": n, "m": m, "k": 3}, 3 * n**2 * m**0.5) for n in (1, 7, 30) for m in (2, 50)]
    )
    assert {axis: (round(each.value, 9), each.sizes) for axis, each in exact.items()} == {
        "n": (2, 3),
        "m": (0.5, 2),
    }
    assert exact["n"].error < 1e-9
    sizes = np.array([10, 20, 50, 90, 300])
    values = sizes**1.5 * np.random.default_rng(1).uniform(0.5, 2, 5)
    (slope, _), covariance = np.polyfit(np.log(sizes), np.log(values), 1, cov=True)
    found = fit_exponents(
        [({"n": int(n)}, float(value)) for n, value in zip(sizes, values, strict=True)]
    )["n"]
    np.testing.assert_allclose(
        (found.value, found.error), (slope, covariance[0, 0] ** 0.5), rtol=1e-9
    )


def run_of(n, seconds, memory, axis="n"):
    return SizeRun({axis: n}, 0.1, 0.1, 0.3, 1, (seconds,) * 5, memory)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (
            [1.0, 1.2, 2.2, 4.6],
            "quickest at n=400 (5.5 ms), and nearly so at n=200 (6 ms), n=800 (5.75 ms)",
        ),
        ([1.0, 1.5, 2.0, 2.5], "quickest at n=800 (3.12 ms)"),
        ([1.0, 1.2], None),
    ],
)
def test_batch_sizes_worth_trying_are_those_of_the_sweep(seconds, told):
    """By seconds for each element; two sizes tell nothing."""
    runs = [run_of(100 * 2**i, each, None) for i, each in enumerate(seconds)]
    assert worth_trying(runs) == ([] if told is None else [f"for each n a call is {told}"])


def test_the_upper_half_tells_growth_that_a_dispatch_hides():
    """20 us at any size and 1 ns an element: nearly constant over all sizes, linear over the upper
    ones.
    """
    runs = [
        run_of(10**p, 20e-6 + 1e-9 * 10**p, ProgramMemory(4 * 10**p, 4, 0, 0)) for p in range(2, 10)
    ]
    call = next(growth for growth in growths(runs) if growth.of == "warm call")
    assert call.exponent.value < 0.75
    assert call.upper.value > 0.95
    assert "temporaries" not in {growth.of for growth in growths(runs)}


@pytest.mark.parametrize(
    "runs",
    [
        [run_of(8, 1e-3, None)],
        [
            run_of(n, 1e-5 * n, ProgramMemory(4 * n, 4, n, 0), "a_very_long_name_of_an_axis")
            for n in (10, 1000, 10**6)
        ],
        [SizeRun({}, 0.1, 0.1, 0.1, 1, (1e-3,) * 5, ProgramMemory(1, 1, 1, 0))],
    ],
    ids=["one size, memory unknown", "three sizes", "no axis"],
)
def test_the_picture_is_whole_in_itself(runs):
    """It is XML, nothing in it comes from elsewhere, and each point is inside."""
    text = svg("a <b> & c", runs, growths(runs))
    root = ET.fromstring(text)
    wide, high = map(float, root.attrib["viewBox"].split()[2:])
    circles = [each for each in root.iter() if each.tag.endswith("circle")]
    assert all(
        0 <= float(each.attrib["cx"]) <= wide and 0 <= float(each.attrib["cy"]) <= high
        for each in circles
    )
    assert text.count("://") == 1  # the name space
    assert next(each.text for each in root.iter() if each.tag.endswith("}text")) == "a <b> & c"


@pytest.mark.parametrize("dtype", ["int2", "uint2", "int4", "uint4", "int8", "uint32"])
def test_numbers_of_narrow_integers_are_not_negative(dtype):
    """None is beyond what the type holds, which would make it negative."""
    like = jax.ShapeDtypeStruct((200,), jnp.dtype(dtype))
    drawn = inputs._numbers(like, np.random.default_rng(0))
    assert drawn.dtype == like.dtype
    assert set(drawn.astype(int).tolist()) == set(range(min(10, int(jnp.iinfo(dtype).max) + 1)))
