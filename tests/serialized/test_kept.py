"""What is kept is the same program; what is damaged, foreign or in doubt is traced."""

import gc
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitney
from jitney._record.libraries import Libraries
from jitney._serialized.stored import SerializedProgram
from tests.serialized import _lab as lab

KEPT = [(True, "cached for other processes")]
FOUND = [(True, "found: neither traced nor lowered in this process")]
TEXT = """
import equinox as eqx
import jax
import jax.numpy as jnp
import jitney


class Layer(eqx.Module):
    w: jax.Array
    name: str = eqx.field(static=True)

    def __call__(self, x):
        return jnp.tanh(self.w @ x)


def loss(layer, x):
    return jnp.sum(layer(x) ** 2)


def step(layer, x):
    value, grad = eqx.filter_value_and_grad(loss)(layer, x)
    return {"value": value, "layer": eqx.apply_updates(layer, jax.tree.map(lambda g: -0.1 * g, grad)), "name": layer.name, "n": 3}


program = jitney.optimize(cache="program", donate="layer")(step)
gradient = jitney.optimize(cache="program")(loss)


def arguments():
    return Layer(jnp.arange(6.0).reshape(2, 3) / 10, "one"), jnp.ones(3)
"""


@pytest.mark.rest
def test_a_result_comes_back_as_it_was(folder, tmp_path):
    """Modules, static values and text, of buffers that were donated, equal to those of plain
    `jax.jit` to the bit.
    """
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            want = eqx.filter_jit(main.step)(*main.arguments())
            out = main.program(*main.arguments())
            assert lab.notes(main.program) == note
            assert eqx.tree_equal(out, want)
            assert type(out["layer"]) is main.Layer
            assert eqx.tree_equal(main.program(*main.arguments()), want)


def test_updates_in_place_are_said_in_each_process(folder, tmp_path):
    """The one that finds the program runs no body that could make them."""
    text = (
        "import jitney\n\n\n@jitney.optimize(cache='program')\ndef total(b):\n    b.pop('y')\n   "
        " return b['x'] * 2\n"
    )
    lab.write(tmp_path, {"lab_main.py": text})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            with pytest.warns(jitney.JitneyWarning, match=r"in place: \"b\['y'\]\" is gone"):
                main.total({"x": jnp.ones(3), "y": jnp.ones(3)})
            assert lab.notes(main.total) == note


@pytest.mark.rest
def test_it_is_found_by_the_first_call_of_a_fresh_process(tmp_path):
    """Where what JAX imports later, to lower and to write programs, is not imported yet: nothing
    has been compiled.
    """
    lab.write(
        tmp_path,
        {
            "lab_main.py": (
                "import jitney\n\n\n@jitney.optimize(cache='program')\ndef double(x):\n    return x"
                " * 2\n"
            )
        },
    )
    code = (
        "import numpy, lab_main; from tests.serialized import _lab; lab_main.double(numpy.ones(3));"
        " print(_lab.notes(lab_main.double))"
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "JITNEY_CACHE_DIR": str(tmp_path / "cache"),
    }
    env.pop("XLA_FLAGS", None)
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said == [f"{KEPT}\n", f"{FOUND}\n"]


OUTSIDE = """
import sys

import jax.numpy as jnp
import jitney
import numpy as np


@jitney.optimize(cache="program")
def double(x):
    return jnp.tanh(x * 2) + jnp.sort(x)


@jitney.optimize(cache="program")
def solved(a, b):
    return jnp.linalg.solve(a, b)


a = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
np.testing.assert_allclose(double(a[0]), np.tanh(2 * a[0]) + np.sort(a[0]), rtol=1e-6)
began = "scipy.linalg" in sys.modules
np.testing.assert_allclose(solved(a, a[0]), np.linalg.solve(a, a[0]), rtol=1e-5)
ended = "scipy.linalg" in sys.modules
import scipy.linalg.cython_lapack
from tests.serialized import _lab

assert "dgesv" in scipy.linalg.cython_lapack.__pyx_capi__ and "dgemm" in scipy.linalg.cython_blas.__pyx_capi__
np.testing.assert_allclose(scipy.linalg.solve(a, a[0]), np.linalg.solve(a, a[0]), atol=1e-6)
print(_lab.notes(double), _lab.notes(solved), began, ended)
"""
LOADED = """
import sys, threading

import jitney
import numpy as np

done = threading.Event()
if sys.argv[1] == "beside":
    threading.Thread(target=done.wait).start()
solved = jitney.load("solved.jitney")
a = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
try:
    np.testing.assert_allclose(solved(a, a[0]), np.linalg.solve(a, a[0]), rtol=1e-5)
finally:
    done.set()
print("scipy.linalg" in sys.modules)
"""


@pytest.mark.rest
def test_lapack_is_found_without_the_rest_of_scipy(tmp_path):
    """JAX imports `scipy.linalg` where it lowers a program that solves. Where such a program is
    found two modules of it do, and whoever imports the rest later has all of it; a program that
    calls nothing outside of XLA does without.
    """
    lab.write(tmp_path, {"lab_main.py": OUTSIDE})
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "JITNEY_CACHE_DIR": str(tmp_path / "cache"),
    }
    env.pop("XLA_FLAGS", None)
    said = [
        subprocess.run(
            [sys.executable, "-c", "import lab_main"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert said == [f"{KEPT} {KEPT} False True\n", f"{FOUND} {FOUND} False False\n"]


@pytest.mark.rest
def test_lapack_is_found_so_for_loaded_programs_too(tmp_path):
    """Not where another thread runs, which may be about to import the same modules: then JAX finds
    it as it does by itself.
    """
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "JITNEY_CACHE": "off",
    }
    lab.write(tmp_path, {"lab_main.py": OUTSIDE.partition("a = np.array")[0]})
    make = (
        "import lab_main, numpy as np; lab_main.solved.export('solved.jitney', np.eye(2,"
        " dtype='f'), np.ones(2, 'f'))"
    )
    subprocess.run([sys.executable, "-c", make], env=env, cwd=tmp_path, check=True)
    for how, is_imported in (("alone", False), ("beside", True)):
        run = subprocess.run(
            [sys.executable, "-c", LOADED, how],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout == f"{is_imported}\n", how


def test_what_runs_when_garbage_is_collected_is_not_the_bodys(folder, tmp_path):
    """Tools have callbacks there: a program is kept all the same, and garbage is collected as
    before.
    """

    def collected(phase, info):
        type(phase)

    lab.write(tmp_path, {"lab_main.py": TEXT})
    every, was_on = gc.get_threshold(), gc.isenabled()
    gc.callbacks.append(collected)
    gc.enable()
    gc.set_threshold(10)
    try:
        with lab.process(tmp_path) as main:
            main.gradient(*main.arguments())
            assert lab.notes(main.gradient) == KEPT
        assert gc.isenabled()
    finally:
        gc.set_threshold(*every)
        gc.callbacks.remove(collected)
        if not was_on:
            gc.disable()


def test_a_derivative_of_a_program_is_kept_too(folder, tmp_path):
    """`f.grad` is a program of its own."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            layer, x = main.arguments()
            [made] = main.gradient.grad(layer, x) is not None and main.gradient.derivatives("grad")
            assert lab.notes(made) == note
            want = eqx.filter_grad(main.loss)(layer, x)
            np.testing.assert_allclose(main.gradient.grad(layer, x)["layer"].w, want.w, rtol=1e-6)


NEW = """
import equinox as eqx
import jax.numpy as jnp
import jitney


class Pair(eqx.Module):
    first: object
    name: str = eqx.field(static=True)
    power: tuple = eqx.field(static=True)
    second: object = None

    def __init__(self, first, second):
        self.first, self.second, self.name, self.power = first, second, "pair", (2, jnp.tanh)


def paired(x):
    return {"pair": Pair(x, [Pair(2 * x, None)]), "weak": jnp.add(1.0, 2.0)}


program = jitney.optimize(cache="program")(paired)
"""


def test_modules_that_no_argument_is_like_and_weak_numbers_come_back(folder, tmp_path):
    """By the name of the class, field by field; a weak number is weak."""
    lab.write(tmp_path, {"lab_main.py": NEW})
    x = jnp.ones(2)
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            out = main.program(x)
            assert lab.notes(main.program) == note
            assert eqx.tree_equal(out, eqx.filter_jit(main.paired)(x), typematch=True)
            assert type(out["pair"].second[0]) is main.Pair
            assert out["pair"].power == (2, jnp.tanh)
            assert out["weak"].weak_type


def test_a_contract_behind_a_name_is_that_of_now(folder, tmp_path):
    """Of a field whose annotation is a text: what the new one refuses is refused, though the
    program would be the same.
    """
    text = """
    from __future__ import annotations

    import equinox as eqx
    import jitney
    from jaxtyping import Array, Float

    Weights = Float[Array, "n"]


    class Model(eqx.Module):
        weights: Weights


    def called(model: Model, x: Float[Array, "n"]):
        return model.weights * x


    program = jitney.optimize(cache="program")(called)
    """
    lab.write(tmp_path, {"lab_main.py": text})
    with lab.process(tmp_path) as main:
        main.program(main.Model(jnp.ones(2)), jnp.ones(2))
        assert lab.notes(main.program) == KEPT
    lab.write(tmp_path, {"lab_main.py": text.replace('[Array, "n"]', '[Array, "3"]', 1)})
    with lab.process(tmp_path) as main, pytest.raises(jitney.errors.ContractError, match="weights"):
        main.program(main.Model(jnp.ones(2)), jnp.ones(2))


def test_under_outer_transforms_it_is_traced(folder, tmp_path):
    """An exported program has no map and no second derivative of its own."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    for _ in range(2):
        with lab.process(tmp_path) as main:
            check_under_transforms(main.gradient, main.loss, *main.arguments())


def check_under_transforms(program, loss, layer, x):
    program(layer, x)
    np.testing.assert_allclose(
        jax.grad(lambda x: program(layer, x))(x), jax.grad(lambda x: loss(layer, x))(x), rtol=1e-6
    )
    np.testing.assert_allclose(
        jax.vmap(lambda x: program(layer, x))(x[None])[0], loss(layer, x), rtol=1e-6
    )
    np.testing.assert_allclose(jax.jit(lambda: program(layer, x))(), loss(layer, x), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"compiler": "fast"}, 'programs with `compiler="fast"` are not cached yet'),
        (
            {"memory": "auto"},
            'programs with `memory="auto"` are not cached: what is free is another number each time',
        ),
        ({"debug_nans": True}, "programs with `debug_nans` are not cached yet"),
    ],
)
def test_options_whose_programs_are_not_kept_say_so(options, why):
    """In the plan, before any call."""
    from jaxtyping import Array, Float

    def f(x: Float[Array, "n"]) -> Float[Array, "n"]:
        return x * 2

    plan = jitney.optimize(cache="program", **options)(f).plan(jnp.ones(4))
    assert [(line.taken, line.why) for line in plan.lines if line.name == "cached program"] == [
        (False, f"not cached: {why}")
    ]


REFUSED = {
    "checks around callbacks": (
        (
            "import equinox as eqx, jax\ndef called(x):\n    jax.debug.print('{}', x)\n    return"
            " eqx.error_if(x, x[0] > 3, 'big')\n"
        ),
        "effects",
    ),
    "callbacks": (
        "import jax\ndef called(x):\n    jax.debug.callback(lambda x: None, x)\n    return x\n",
        "effects",
    ),
    "clocks": ("import time\ndef called(x):\n    return x * time.time()\n", "`time`"),
    "random numbers": (
        "import numpy as np\ndef called(x):\n    return x * np.random.rand()\n",
        "numpy.random",
    ),
    "counters": (
        "n = []\ndef called(x):\n    n.append(1)\n    return x\n",
        "the trace changes what it reads",
    ),
    "a kind of result without a name": (
        (
            "import equinox as eqx\ndef kind():\n    class M(eqx.Module):\n        x: object\n   "
            " return M\nM = kind()\ndef called(x):\n    return M(x)\n"
        ),
        "no name leads to",
    ),
    "an unknown package": (
        "import scipy.special\ndef called(x):\n    return x * scipy.special.zeta(2, 1)\n",
        "`scipy`",
    ),
    "a set of texts": (
        "names = {'a', 'b'}\ndef called(x):\n    return x if 'a' in names else -x\n",
        "a set of texts",
    ),
    "a loop over a set": (
        (
            "def called(x):\n    for name in {'a', 'b'}:\n        x = 2 * x + ord(name)\n   "
            " return x\n"
        ),
        "makes a set",
    ),
    "the names of a set": (
        "def called(x):\n    for name in set('ab'):\n        x = 2 * x + ord(name)\n    return x\n",
        "`set`",
    ),
    "a registered class": (
        (
            "import dataclasses,"
            " jax\n@jax.tree_util.register_dataclass\n@dataclasses.dataclass\nclass D:\n    n:"
            " float\nheld = D(2.0)\ndef called(x):\n    return x * jax.tree.leaves(held)[0]\n"
        ),
        "a node of JAX's trees",
    ),
    "dates": (
        (
            "import numpy as np\ndef called(x):\n    return x *"
            " float(np.datetime64('now').astype(int))\n"
        ),
        "datetime64",
    ),
    "dates of arrays": (
        (
            "import numpy as np\ndef called(x):\n    return x * np.array('now',"
            " 'M8[us]').astype(float)\n"
        ),
        "'now'",
    ),
    "dates by a cast": (
        (
            "import numpy as np\ndef called(x):\n    return x *"
            " float(np.asarray(['now']).astype('M8[us]').astype(int)[0])\n"
        ),
        "'now'",
    ),
    "dates by a range": (
        (
            "import numpy as np\ndef called(x):\n    return x * np.arange('now', '2100-01-01',"
            " dtype='M8[D]').size\n"
        ),
        "'now'",
    ),
    "random matrices": (
        "import numpy.matlib as of\ndef called(x):\n    return x * float(of.rand(1, 1)[0, 0])\n",
        "draws random numbers",
    ),
    "a generator": (
        "g = (i for i in range(3))\ndef called(x):\n    return x if g is not None else -x\n",
        "builtins.generator",
    ),
}


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of `numpy.matlib`
@pytest.mark.core("callbacks", "clocks")
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_sure_is_not_kept_and_the_plan_says_why(folder, tmp_path, what):
    """With the name of what was read."""
    text, why = REFUSED[what]
    lab.write(
        tmp_path,
        {
            "lab_main.py": (
                f"import jax.numpy as jnp\nimport jitney\n{text}\nprogram ="
                " jitney.optimize(cache='program')(called)\n"
            )
        },
    )
    with lab.process(tmp_path) as main:
        main.program(jnp.ones(2))
        [(is_kept, said)] = lab.notes(main.program)
        assert not is_kept
        assert why in said
        assert [
            line.why
            for line in main.program.plan(jnp.ones(2)).lines
            if line.name == "cached program"
        ] == [said]
    assert not list(folder.iterdir())


@pytest.mark.core("True")
@pytest.mark.parametrize("is_committed", [False, True])
def test_results_are_committed_where_those_of_jit_are(folder, tmp_path, is_committed):
    """To the device of a committed argument, in the process that keeps a program and in that which
    finds it.
    """
    lab.write(
        tmp_path,
        {
            "lab_main.py": (
                "import jitney\n\n\n@jitney.optimize(cache='program')\ndef double(x):\n    return"
                " {'a': x * 2, 'n': 3}\n"
            )
        },
    )
    x = jnp.ones(2)
    given = jax.device_put(x, jax.devices()[0]) if is_committed else x
    assert jax.jit(lambda x: x * 2)(given).committed == is_committed
    for note in (KEPT, FOUND):
        with lab.process(tmp_path) as main:
            assert main.double(given)["a"].committed == is_committed
            assert lab.notes(main.double) == note


FILES = {
    "Equinox": (
        "import equinox as eqx",
        "eqx.tree_serialise_leaves(FILE, np.array([n]))",
        "eqx.tree_deserialise_leaves(FILE, np.array([0.0]))[0]",
    ),
    "an archive of NumPy's": ("read = np.load", "np.savez(FILE, n=n)", "read(FILE)['n']"),
    "a map of NumPy's": (
        "",
        "np.save(FILE, np.array([n]))",
        "np.lib.format.open_memmap(FILE, mode='r')[0]",
    ),
    "an archive that is open": ("", "np.savez(FILE, n=n)", "HELD['n']"),
    "JAX": ("", "np.save(FILE, np.array([n]))", "jnp.load(FILE)[0]"),
    "a program from a file": (
        "import jax",
        "jitney.optimize(lambda: jnp.array(n)).export(FILE)",
        "jitney.load(FILE)()",
    ),
}
OPENS = """
import pathlib
import jax.numpy as jnp, numpy as np
import jitney
{imports}
FILE = {file!r}
n = float(pathlib.Path(FILE + ".txt").read_text())
{write}
{held}


def called(x):
    return x * jnp.float32({read})


program = jitney.optimize(cache="program")(called)
"""


def opens(tmp_path, how):
    """A module that reads a number from a file in this way, after it has written it there."""
    imports, write, read = FILES[how]
    file = str(tmp_path / "numbers.npz" if "archive" in how else tmp_path / "numbers.npy")
    held = "HELD = np.load(FILE)" if "HELD" in read else ""
    lab.write(
        tmp_path,
        {
            "lab_main.py": OPENS.format(
                imports=imports, file=file, write=write, read=read, held=held
            )
        },
    )
    return Path(file + ".txt")


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.core("Equinox")
@pytest.mark.parametrize("how", FILES)
def test_a_file_that_a_library_reads_is_never_stale(folder, tmp_path, how):
    """By whatever name it is opened: nothing is kept, and the plan says which file it was."""
    number = opens(tmp_path, how)
    for n in (2.0, 3.0):
        number.write_text(str(n))
        with lab.process(tmp_path) as main:
            np.testing.assert_array_equal(main.program(jnp.ones(2)), n * np.ones(2))
            [(is_kept, why)] = lab.notes(main.program)
            assert not is_kept
            if how == "Equinox":
                assert (
                    why
                    == "not cached: `called (lab_main.py)` opens the file 'numbers.npy', and what"
                    " that says is not followed"
                )
    assert not list(folder.iterdir())


@pytest.mark.rest
def test_a_file_that_a_library_reads_is_read_by_each_real_process(tmp_path):
    number = opens(tmp_path, "Equinox")
    code = "import lab_main, jax.numpy as jnp; print(float(lab_main.program(jnp.ones(2))[0]))"
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "JITNEY_CACHE_DIR": str(tmp_path / "cache"),
    }
    for n in ("2.0", "3.0"):
        number.write_text(n)
        said = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        ).stdout
        assert said == f"{n}\n"


@pytest.mark.rest
def test_files_that_other_threads_open_do_not_count(folder, tmp_path):
    """Only what the thread that traces opens is read by the trace."""
    lab.write(
        tmp_path,
        {
            "lab_main.py": (
                "import jitney\n\n\n@jitney.optimize(cache='program')\ndef double(x):\n    return x"
                " * 2\n"
            )
        },
    )
    over = threading.Event()

    def reads():
        while not over.is_set():
            (tmp_path / "lab_main.py").read_text()

    thread = threading.Thread(target=reads)
    thread.start()
    try:
        with lab.process(tmp_path) as main:
            main.double(jnp.ones(2))
            assert lab.notes(main.double) == KEPT
    finally:
        over.set()
        thread.join()


ORDER = {
    "two views": ("", "D.keys() & D.keys()"),
    "a view by a name": ("", "view() - D.keys()\n\n\ndef view():\n    return D.keys()"),
    "a view that is passed": ("", "both(D.keys())\n\n\ndef both(names):\n    return names | D"),
    "a method of a dict": ("", "keys() & keys()\n\n\nkeys = D.keys"),
    "a method of the class": (
        "import functools, operator",
        "functools.reduce(operator.and_, map(dict.keys, [D, D]))",
    ),
    "items": ("", "dict(D.items() - {}.items())"),
    "another mapping": ("from collections.abc import Mapping", "Other().keys() & D.keys()"),
    "a union": ("SET = frozenset()", "SET.union(D)"),
    "the type of a set": ("SET = frozenset((1,))", "type(SET)(D)"),
    "the class of a set": ("SET = frozenset((1,))", "SET.__class__(D)"),
    "an item at a time": ("", "sorted(D.keys())"),
    "a comprehension": ("", "[name for name, _ in D.items()]"),
    "numbers": ("SET = frozenset((1, 2))", "{name: 0 for name in D if 1 in SET}"),
}
IN_ORDER = ("an item at a time", "a comprehension", "numbers")
ORDERED = """
import jax.numpy as jnp
import jitney
{imports}
D = {{"a": 2.0, "b": 3.0, "c": 5.0, "d": 7.0}}


class Other({base}):
    def __getitem__(self, name):
        return D[name]

    def __iter__(self):
        return iter(("a", "b", "c", "d"))

    def __len__(self):
        return 4


def called(x):
    for name in names():
        x = 2 * x + D[name]
    return x


def names():
    return {names}


program = jitney.optimize(cache="program")(called)
"""


@pytest.mark.core("two views", "the type of a set", "a comprehension")
@pytest.mark.parametrize("what", ORDER)
def test_the_order_of_a_set_that_is_made_of_others_is_not_kept(folder, tmp_path, what):
    """That of texts is another in each process; names in the order of a dict are kept."""
    imports, names = ORDER[what]
    base = "Mapping" if "Mapping" in imports else "object"
    lab.write(tmp_path, {"lab_main.py": ORDERED.format(imports=imports, base=base, names=names)})
    with lab.process(tmp_path) as main:
        main.program(jnp.ones(2))
        [(is_kept, why)] = lab.notes(main.program)
        assert is_kept == (what in IN_ORDER)
        assert is_kept or "order may be another in each process" in why


@pytest.mark.rest
def test_the_order_of_a_set_is_that_of_each_real_process(tmp_path):
    """Four seeds of Python's hashes."""
    lab.write(
        tmp_path,
        {"lab_main.py": ORDERED.format(imports="", base="object", names="D.keys() & D.keys()")},
    )
    code = (
        "import lab_main as m, jax.numpy as jnp; x = jnp.ones(1); assert m.program(x)[0] =="
        " m.called(x)[0]"
    )
    for seed in "1234":
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            "JITNEY_CACHE_DIR": str(tmp_path / "cache"),
        }
        subprocess.run(
            [sys.executable, "-c", code], env={**env, "PYTHONHASHSEED": seed}, check=True
        )


PRIMITIVE = """
import functools
import operator

import jax
import jitney
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

mine = Primitive("mine")
mine.def_abstract_eval(lambda x: ShapedArray(x.shape, x.dtype))


def tangent(n, primals, tangents):
    return mine.bind(*primals), n * tangents[0]


def mapped(n, arguments, axes):
    return n * mine.bind(*arguments), axes[0]


mlir.register_lowering(mine, mlir.lower_fun(functools.partial(operator.mul, {lowering}), multiple_results=False))
ad.primitive_jvps[mine] = functools.partial(tangent, {tangent})
batching.primitive_batchers[mine] = functools.partial(mapped, {mapped})
RULES = (tangent, mapped)


def called(x):
    {what}
    return (RULES and x) * 0 + x


program = jitney.optimize(cache="program")(called)
"""
USES = {
    "lowering": "x = mine.bind(x)",
    "tangent": "x = jax.jvp(mine.bind, (x,), (x,))[1]",
    "mapped": "x = jax.vmap(mine.bind)(x)",
}


@pytest.mark.core("lowering")
@pytest.mark.parametrize("rule", USES)
def test_rules_of_a_primitive_of_ones_own_are_never_stale(folder, tmp_path, rule):
    """They lie in tables of JAX, with numbers that no name leads to."""
    for n in (2.0, 3.0):
        numbers = {**dict.fromkeys(USES, 1.0), rule: n}
        lab.write(tmp_path, {"lab_main.py": PRIMITIVE.format(what=USES[rule], **numbers)})
        with lab.process(tmp_path) as main:
            np.testing.assert_array_equal(main.program(jnp.ones(2)), n * np.ones(2))
            [(is_kept, why)] = lab.notes(main.program)
            assert not is_kept
            assert "is a primitive that JAX does not name" in why


def only(folder):
    [entry] = folder.iterdir()
    return entry


def cut(entry):
    entry.write_bytes(entry.read_bytes()[:-7])


def flip(entry):
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(bytes(content))


def empty(entry):
    entry.write_bytes(b"")


def give_away(entry):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(entry, 12345, 12345)


def open_up(entry):
    entry.chmod(0o666)


def of_another_version(entry):
    from jitney._jax.compile_cache.own_entries import read, write

    content = read(entry)
    entry.unlink()
    write(entry, re.sub(rb"^jitney program \d+", b"jitney program 999", content))


def under_another_key(entry):
    from jitney._jax.compile_cache.own_entries import read, write

    content = read(entry)
    entry.unlink()
    stored = SerializedProgram.of(content)
    write(
        entry,
        SerializedProgram("0" * 64, stored.form, stored.libraries, stored.exported).to_bytes(),
    )


def a_link(entry):
    elsewhere = entry.with_name("elsewhere")
    entry.rename(elsewhere)
    entry.symlink_to(elsewhere)


def a_patched_library(entry):
    from jitney._jax.compile_cache.own_entries import read, write

    content = read(entry)
    stored = SerializedProgram.of(content)
    names = [replace(names, digest="0" * 32) for names in stored.libraries.names]
    entry.unlink()
    write(
        entry,
        SerializedProgram(
            stored.key, stored.form, Libraries(stored.libraries.files, names), stored.exported
        ).to_bytes(),
    )


def an_updated_library(entry):
    from jitney._jax.compile_cache.own_entries import read, write

    content = read(entry)
    stored = SerializedProgram.of(content)
    files = {name: (size + 1, changed) for name, (size, changed) in stored.libraries.files.items()}
    entry.unlink()
    write(
        entry,
        SerializedProgram(
            stored.key, stored.form, Libraries(files, stored.libraries.names), stored.exported
        ).to_bytes(),
    )


@pytest.mark.core("flip", "open_up", "of_another_version", "under_another_key")
@pytest.mark.skipif(os.name != "posix", reason="owners and modes")
@pytest.mark.parametrize(
    "harm",
    [
        cut,
        flip,
        empty,
        give_away,
        open_up,
        of_another_version,
        under_another_key,
        a_link,
        a_patched_library,
        an_updated_library,
    ],
)
def test_an_entry_that_is_damaged_or_foreign_is_not_run(folder, tmp_path, harm):
    """It is traced, and the result is right."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    with lab.process(tmp_path) as main:
        layer, x = main.arguments()
        want = main.gradient(layer, x)
    harm(only(folder))
    with lab.process(tmp_path) as main:
        layer, x = main.arguments()
        assert main.gradient(layer, x) == want
        assert main.gradient.stats.traces == 1


def test_a_folder_that_cannot_be_written_keeps_nothing(folder, tmp_path, monkeypatch):
    """And costs a trace."""
    from jitney._serialized import request

    monkeypatch.setattr(request, "own", lambda: folder / "not there")
    lab.write(tmp_path, {"lab_main.py": TEXT})
    with lab.process(tmp_path) as main:
        layer, x = main.arguments()
        np.testing.assert_allclose(main.gradient(layer, x), main.loss(layer, x), rtol=1e-6)
        assert lab.notes(main.gradient) == [(False, "not cached: the folder cannot be written")]


KEYED = """
import jax, jitney

KEY = jax.random.key(SEED)


@jitney.optimize(cache="program")
def noisy(x):
    return x + jax.random.normal(KEY, x.shape)
"""


@pytest.mark.rest
def test_a_random_key_that_a_function_closes_over_counts(folder, tmp_path):
    """By its numbers, which can be read while the function is traced."""
    for seed, note in ((1, KEPT), (1, FOUND), (2, KEPT)):
        lab.write(tmp_path, {"lab_main.py": KEYED.replace("SEED", str(seed))})
        with lab.process(tmp_path) as main:
            noise = jax.random.normal(jax.random.key(seed), (3,))
            np.testing.assert_allclose(
                main.noisy(jnp.arange(3.0)), jnp.arange(3.0) + noise, rtol=1e-6
            )
            assert lab.notes(main.noisy) == note


def test_other_shapes_dtypes_and_ranks_are_other_programs(folder, tmp_path):
    """Another process finds each as what it is."""
    lab.write(
        tmp_path,
        {
            "lab_main.py": (
                "import jitney\n\n\n@jitney.optimize(cache='program')\ndef double(x):\n    return x"
                " + x\n"
            )
        },
    )
    given = [
        np.ones(3, np.float32),
        np.ones(4, np.float32),
        np.ones((3, 1), np.float32),
        np.ones(3, np.int32),
    ]
    for traces in (len(given), 0):
        with lab.process(tmp_path) as main:
            for x in given:
                got = main.double(x)
                assert (got.shape, got.dtype) == (x.shape, x.dtype)
                np.testing.assert_array_equal(got, 2 * x)
            assert main.double.stats.traces == traces


def test_other_settings_are_other_programs(folder, tmp_path):
    """Those of JAX that a trace may depend on."""
    lab.write(tmp_path, {"lab_main.py": TEXT})
    with lab.process(tmp_path) as main:
        main.gradient(*main.arguments())
    with jax.default_matmul_precision("float32"), lab.process(tmp_path) as main:
        main.gradient(*main.arguments())
        assert lab.notes(main.gradient) == KEPT


def test_a_patched_function_that_a_library_uses_is_seen(folder, tmp_path, monkeypatch):
    """Though nothing of the user's names it, and though it says that it wraps the one of before."""
    import functools

    text = """
    import equinox
    import jitney

    norm = equinox.nn.LayerNorm(4)


    def called(x):
        return norm(x)


    program = jitney.optimize(cache="program")(called)
    """
    lab.write(tmp_path, {"lab_main.py": text})
    before, x = jnp.mean, jnp.arange(4.0)
    results: list[jax.Array] = []
    for is_patched in (False, True, False):
        if is_patched:
            monkeypatch.setattr(
                jnp,
                "mean",
                functools.wraps(before)(lambda *args, **options: before(*args, **options) + 1),
            )
        with lab.process(tmp_path) as main:
            results.append(main.program(x))
            np.testing.assert_allclose(results[-1], main.norm(x), rtol=1e-6)
            found = lab.is_found(main.program)
        monkeypatch.setattr(jnp, "mean", before)
    assert found
    assert abs(results[1] - results[0]).max() > 0.1


@pytest.mark.rest
def test_verify_traces_too_and_compares(folder, tmp_path):
    """A program that is not the one of now is an error, not a number."""
    lab.write(tmp_path, {"lab_main.py": TEXT, "lab_other.py": TEXT.replace("** 2", "** 3")})
    with lab.process(tmp_path) as main:
        main.gradient(*main.arguments())
    entry = only(folder)
    with jitney_verifying(), lab.process(tmp_path) as main:
        main.gradient(*main.arguments())
        assert lab.notes(main.gradient) == FOUND
    with lab.process(tmp_path, "lab_other") as other:
        other.gradient(*other.arguments())
    [theirs] = [file for file in folder.iterdir() if file != entry]
    swap(entry, theirs)
    with (
        jitney_verifying(),
        lab.process(tmp_path) as main,
        pytest.raises(jitney.errors.VerificationError, match="is not the one that is traced now"),
    ):
        main.gradient(*main.arguments())


def swap(entry, theirs):
    """Put another program in an entry."""
    from jitney._jax.compile_cache.own_entries import read, write

    mine, other = SerializedProgram.of(read(entry)), SerializedProgram.of(read(theirs))
    entry.unlink()
    write(entry, SerializedProgram(mine.key, mine.form, mine.libraries, other.exported).to_bytes())


def jitney_verifying():
    from tests._switched import configured

    return configured(verify=True)


SCRIPT = """
import json, sys
import jax
import lab_main
layer, x = lab_main.arguments()
value = float(lab_main.gradient(layer, x))
notes = [note for entry in lab_main.gradient.core.entries.values() for note in entry.kept.notes.values()]
print(json.dumps([value, lab_main.gradient.stats.traces, notes]))
"""


def start(tmp_path, **more):
    """A real process."""
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
        "JITNEY_CACHE_DIR": str(tmp_path / "cache"),
        **more,
    }
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    env.pop("JITNEY_VERIFY", None)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=env, stdout=subprocess.PIPE, text=True
    )


def finished(process):
    out, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(out)


def test_a_real_process_finds_what_another_one_kept(tmp_path):
    """A comment does not matter."""
    if len(jax.devices()) != 1:
        pytest.skip("programs are kept on one device")
    (tmp_path / "lab_main.py").write_text(textwrap.dedent(TEXT))
    first = finished(start(tmp_path))
    (tmp_path / "lab_main.py").write_text("# a comment\n\n" + TEXT)
    second = finished(start(tmp_path))
    assert (first[1], second[1]) == (1, 0), (first[2], second[2])
    assert second[0] == first[0]


@pytest.mark.slow
def test_processes_at_once_and_one_that_is_killed_while_it_writes(tmp_path):
    """Each has the right result, and what is left behind is whole."""
    (tmp_path / "lab_main.py").write_text(TEXT)
    together = [start(tmp_path) for _ in range(4)]
    values = {finished(process)[0] for process in together}
    for seconds in (1.0, 1.5, 2.0, 2.5, 3.0):
        (tmp_path / "lab_main.py").write_text(TEXT.replace("0.1", str(seconds)))
        process = start(tmp_path)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
    (tmp_path / "lab_main.py").write_text(TEXT)
    assert {finished(start(tmp_path))[0]} == values
    assert len(values) == 1


@pytest.mark.rest
def test_off_is_off(tmp_path):
    """JITNEY_CACHE=off keeps nothing."""
    if len(jax.devices()) != 1:
        pytest.skip("programs are kept on one device")
    (tmp_path / "lab_main.py").write_text(TEXT)
    _, traces, [(is_kept, why)] = finished(start(tmp_path, JITNEY_CACHE="off"))
    assert (traces, is_kept) == (1, False)
    assert "there is no folder" in why
