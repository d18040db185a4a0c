"""What lines of a program do with arrays: what costs is named with its line, and nothing is said of
what is well.
"""

import json
import sys

import jax
import pytest

from jitney._command import changes as whole
from jitney._command import launch
from jitney._command.changes import changes
from jitney._command.findings.call_arguments import with_transfer_seconds
from jitney._command.findings.change import ProposedChange
from jitney._command.jax_log import read_events
from jitney._command.page import page
from tests.command._scripts import jax_explains, watched
from tests.command.test_page import TOLD

seen_by_python = pytest.mark.skipif(
    sys.version_info < (3, 13),
    reason="`sys.monitoring` is new in 3.12, and 3.12 reads no names of functions",
)
KEPT = {
    "jax_compilation_cache_dir": "/some/folder",
    "jax_persistent_cache_min_compile_time_secs": 0.0,
}
HEAD = "import functools, jax, jax.numpy as jnp, numpy as np\n"
STEP = """
@jax.jit
def step(x, w):
    return x * 0.5 + w, x.sum()
"""
WELL = {
    "four reads": "x = jnp.ones(9)\nfor _ in range(4):\n    float(x[0])\n",
    "one line for each": "x = jnp.ones(())\n" + "float(x)\n" * 6,
    "NumPy's numbers": "x = np.float32(1)\nfor _ in range(9):\n    float(x)\n",
    "an array that lives on": STEP
    + """
def loop(x, w):
    kept = []
    for _ in range(9):
        kept.append(x)
        x, _s = step(x, w)
    return kept
loop(jnp.ones(5), jnp.ones(5))
""",
    "used after the call": STEP
    + """
def loop(x, w):
    for _ in range(9):
        new, _s = step(x, w)
        moved = new - x
        x = new
loop(jnp.ones(5), jnp.ones(5))
""",
    "donated": STEP.replace("@jax.jit", "@functools.partial(jax.jit, donate_argnums=0)")
    + """
def loop(x, w):
    for _ in range(9):
        x, _s = step(x, w)
loop(jnp.ones(5), jnp.ones(5))
""",
    "no result of its shape": (
        """
@jax.jit
def shrink(x):
    return x[:-1]
def loop(x):
    for _ in range(9):
        x = shrink(x)
loop(jnp.ones(50))
"""
    ),
    "NumPy's sum, which is the array's": "x = jnp.ones(5)\nfor _ in range(9):\n    np.sum(x)\n",
    "in a trace": STEP
    + """
@jax.jit
def outer(x):
    w = np.ones(5, np.float32)
    for _ in range(9):
        x, _s = step(x, w)
    return x
outer(jnp.ones(5))
""",
    "NumPy at first": STEP
    + """
x, w = np.ones(5, np.float32), jnp.ones(5)
for _ in range(9):
    x, kept = step(x, w)
    globals().setdefault("all", []).append(x)
""",
    "a loop that goes on": STEP
    + """
def loop(x, w):
    kept = [x]
    for i in range(9):
        kept.append(step(kept[i], w)[0])
loop(jnp.ones(5), jnp.ones(5))
""",
    "a loop over other shapes": (
        """
@jax.jit
def total(x):
    return x.sum()
kept = [total(x) for x in [jax.device_put(np.ones(n, np.float32)) for n in range(1, 7)]]
"""
    ),
    "few statics": (
        """
@functools.partial(jax.jit, static_argnames="n")
def power(x, n):
    return x ** n
x = jnp.ones(3)
for n in (2, 3, 4, 2, 3, 4):
    power(x, n=n)
"""
    ),
}
COSTS = {
    "float": (
        "x = jnp.ones(())\nfor _ in range(9):\n    float(x)\n",
        4,
        ["read back 9 times, by float(x)"],
    ),
    "a test": (
        "x = jnp.ones(())\nfor _ in range(9):\n    if x > 0: pass\n",
        4,
        ["by a test of x", "greater 1"],
    ),
    "an item": ("x = jnp.ones(())\nfor _ in range(9):\n    x.item()\n", 4, ["by x.item()"]),
    "NumPy's": (
        "x = jnp.ones(5)\nfor _ in range(9):\n    np.asarray(x)\n",
        4,
        ["by np.asarray(x)"],
    ),
    "a function of each element": (
        "x = jnp.ones(5)\nfor _ in range(9):\n    np.sqrt(x)\n",
        4,
        ["by np.sqrt(x)"],
    ),
    "print": ("x = jnp.ones(5)\nfor _ in range(9):\n    f'{x}'\n", 4, ["by formatting x"]),
    "all at once": (
        "x = [jnp.ones(5)]\nfor _ in range(9):\n    jax.device_get(x)\n",
        4,
        ["by jax.device_get(x)"],
    ),
    "the same array": (
        STEP
        + "x, w = jnp.ones(5), np.ones(5, np.float32)\nfor _ in range(9):\n    y, s = step(x, w)\n",
        8,
        ["w, 20 B of NumPy with the same numbers each time, are put on the device again for step"],
    ),
    "written into": (
        STEP
        + "x, w = jnp.ones(5), np.ones(5, np.float32)\nfor _ in range(9):\n    y, s = step(x, w)\n "
        "   w += 1\n",
        8,
        ["w, up to 20 B of NumPy, are put on the device again for step at each of 9 calls"],
    ),
    "a loop of rows": (
        STEP + "w = jnp.ones(5)\nrows = [w * i for i in range(9)]\nkept = []\nfor x in rows:\n"
        "    kept.append(step(x, w))\n",
        10,
        ["step is called 9 times in a loop over x, each time for itself"],
    ),
    "a list of rows": (
        STEP + "w = jnp.ones(5)\nrows = [w * i for i in range(9)]\n"
        "kept = [step(x, w) for x in rows]\n",
        8,
        ["step is called 9 times in a loop over x, each time for itself"],
    ),
    "few calls": (
        STEP + "x, w = jnp.ones(5), jnp.ones(5)\n" + "step(x, w)\n" * 3,
        7,
        ["for 3 calls, of which one takes", "is repaid if a call takes more than"],
    ),
    "statics": (
        """
@functools.partial(jax.jit, static_argnames="n")
def power(x, n):
    return x ** n
x = jnp.ones(3)
for n in range(2, 8):
    power(x, n=n)
""",
        3,
        ["power was compiled 6 times for equal shapes, a program for each value of `n`"],
    ),
}


def found_in(code, tmp_path):
    """The changes for a program, which runs here."""
    file = tmp_path / "program.py"
    file.write_text(HEAD + code)
    jax.clear_caches()
    explained = jax.config.jax_explain_cache_misses
    recording = launch.Recording()
    recording.listen()
    try:
        with jax.numpy_dtype_promotion("standard"):
            exec(compile(file.read_text(), str(file), "exec"), {"__name__": "__main__"})
    finally:
        recording.stop()
        jax.config.update("jax_explain_cache_misses", explained)
    return changes(
        read_events(recording.events, recording.began).compiled,
        KEPT,
        with_transfer_seconds(recording.lines.to_data()),
    )


@pytest.fixture(autouse=True)
def _however_small(monkeypatch):
    monkeypatch.setattr(whole, "_LEAST_BYTES", 0)


@pytest.mark.rest
@pytest.mark.parametrize("case", WELL)
def test_what_is_well_is_not_named(case, tmp_path):
    """No change for it, however small a change may be, but for the sizes of one."""
    assert [
        change.what for change in found_in(WELL[case], tmp_path) if "sizes" not in change.what
    ] == []


@seen_by_python
@pytest.mark.parametrize("case", [case for case in COSTS if case != "statics"])
def test_what_costs_is_named_with_its_line(case, tmp_path):
    """With a bound of the seconds."""
    code, line, (said, *_) = COSTS[case]
    (change,) = found_in(code, tmp_path)
    assert said in change.what
    assert change.where.startswith(f"program.py:{line} ")
    assert change.at_most
    assert 0 < change.seconds < 60


@pytest.mark.rest
@seen_by_python
def test_a_loop_of_rows_is_written_as_its_vmap(tmp_path):
    """With the arguments that are the same for each row, and with those by keyword."""
    code, folder = COSTS["a list of rows"][0], tmp_path / "by name"
    folder.mkdir()
    (change,) = found_in(code, tmp_path)
    assert change.write.startswith("jax.jit(jax.vmap(step, in_axes=(0, None)))")
    (change,) = found_in(code.replace("[step(x, w)", "[step(x, w=x)"), folder)
    assert "with w stacked" in change.write


@pytest.mark.rest
@jax_explains
def test_statics_that_take_many_values_are_a_change(tmp_path):
    """With the argument's name, whether JAX says which it is or not."""
    code, line, (said,) = COSTS["statics"]
    (change,) = found_in(code, tmp_path)
    assert said in change.what
    assert "jnp.asarray(n)" in change.write
    assert change.where == f"program.py:{line}"


@seen_by_python
@pytest.mark.parametrize("keyword", [False, True], ids=["position", "keyword"])
def test_memory_that_a_call_could_take_over_is_named(keyword, tmp_path):
    """By bytes, with the argument to donate; the line that is written does not break the program,
    and takes the memory over.
    """
    call = "step(x=x, w=w)" if keyword else "step(x, w)"
    code = (
        STEP + f"def loop(x, w):\n    for _ in range(9):\n        x, s = {call}\n    return"
        " x\nloop(jnp.ones(50), jnp.ones(50))\n"
    )
    (change,) = [each for each in found_in(code, tmp_path) if each.nbytes]
    option = 'donate_argnames=("x",)' if keyword else "donate_argnums=(0,)"
    assert option in change.write
    assert (change.seconds, change.nbytes, change.at_most) == (None, 200, True)
    assert change.where.startswith("program.py:8 ")
    after = code.replace("@jax.jit", f"@functools.partial(jax.jit, {option})").replace(
        "loop(jnp.ones(50)", "loop(jnp.copy(jnp.ones(50))"
    )
    assert not [each for each in found_in(after, tmp_path) if each.nbytes]


@pytest.mark.rest
@jax_explains
def test_float32_that_comes_back_as_float64_is_named(tmp_path):
    """The function that is compiled again, and the operation that mixes the two; Python's number
    widens nothing.
    """
    program = """
@jax.jit
def decay(x, rate):
    return x * rate
rate = RATE
x = jnp.ones(5, jnp.float32)
for _ in range(3):
    x = decay(x, rate)
y = jnp.ones(6, jnp.float32) * rate
"""
    with jax.enable_x64(True):
        found = found_in(program.replace("RATE", "np.float64(0.5)"), tmp_path)
        well = found_in(program.replace("RATE", "0.5"), tmp_path)
    (again,) = [each for each in found if "came as float64" in each.what]
    assert "decay was compiled again because x came as float64" in again.what
    assert again.where == "program.py:3"
    (mixed,) = [each for each in found if "float32 meets float64" in each.what]
    assert mixed.where.startswith("program.py:10 ")
    assert mixed.nbytes == 24
    if sys.version_info >= (3, 13):
        assert "NumPy's float64 goes in as rate" in again.what
        assert again.write.startswith("np.asarray(rate, np.float32)")
    assert not [each for each in well if "float64" in each.what]


@seen_by_python
def test_an_array_that_is_moved_at_each_call_is_named(tmp_path):
    """It lies on one device, and the others of the call on four."""
    (tmp_path / "wide.py").write_text("""
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
x = jax.device_put(np.ones((4, 500_000), np.float32), NamedSharding(mesh, P("d")))
w, v = jnp.ones((2_000_000,)), jax.device_put(np.ones(3, np.float32), NamedSharding(mesh, P()))
f = jax.jit(lambda x, w, v: (x * 2).sum() + w.sum() + v.sum())
for _ in range(40):
    y = f(x, w, v)
""")
    watched(tmp_path, "wide.py", report=str(tmp_path / "out.json"))
    told = json.loads((tmp_path / "out.json").read_text())["changes"]
    (moved,) = [each for each in told if "is moved" in each["what"]]
    assert moved["what"].startswith(
        "w, of 7.6 MiB, is on fewer devices than <lambda> computes on (4): it is moved 40 times"
    )
    assert moved["where"].startswith("wide.py:11 ")
    assert moved["write"].startswith("w = jax.device_put(w, ")


def test_causes_of_decorated_functions_are_told_with_what_to_write(tmp_path):
    """In place of JAX's words for them; and what needs a newer Python is said to be unseen."""
    (tmp_path / "own.py").write_text("""
import jitney, numpy as np
from jaxtyping import Array, Float

@jitney.optimize
def total(x: Float[Array, "points"]):
    return x.sum()

for n in (3, 4, 5):
    total(np.ones(n, np.float32))
""")
    seen = watched(tmp_path, "own.py", report=str(tmp_path / "out.json"))
    told = json.loads((tmp_path / "out.json").read_text())
    (shape,) = [each for each in told["causes"] if each["cause"] == "shape"]
    assert (shape["function"], shape["times"], shape["remedy"]) == (
        "total",
        2,
        'pad={"points": "pow2"}',
    )
    assert 'pad={"points": "pow2"}' in seen.err
    assert {each["cause"] for each in told["causes"] if each["function"] == "total"} == {
        "first call",
        "shape",
    }
    assert any("Python 3.12" in each for each in told["unseen"]) == (sys.version_info < (3, 12))


def test_what_saves_memory_says_so_instead_of_seconds():
    """As the report and its page write it."""
    change = ProposedChange(
        None, at_most=True, what="x dies", where="a.py:3", write="donate it", nbytes=8 * 2**20
    )
    assert change.to_dict()["saves"] == "at most 8.0 MiB, seconds unknown"
    assert (
        ProposedChange(0.5, at_most=False, what="", where="", write="").to_dict()["saves"]
        == "about 0.50 s"
    )
    assert "at most 8.0 MiB, seconds unknown" in page({**TOLD, "changes": [change.to_dict()]})
