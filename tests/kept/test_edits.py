"""Whatever is edited, nothing stale is run; and what changes nothing loses nothing.

Each edit is made to a package that a pretended process has imported, called and kept; a second one imports it anew. The reference is the sum of
the numbers that the sources hold then.
"""

import itertools
import re

import numpy as np
import pytest

from tests.kept import _lab as lab

EDITS = list(itertools.product(lab.CONTEXTS, lab.NUMBERS))
GATE = 8  # of the edits below; the others are slow
SAME = {
    "comments": lambda text: "# a comment\n\n\n" + text.replace("\n\n", "\n# another\n\n"),
    "blank lines": lambda text: text.replace("\n\n", "\n\n\n\n"),
    "new functions": lambda text: text + "\n\ndef unrelated(x):\n    return x * 99\n",
    "new globals": lambda text: text + "\n\nUNRELATED = 99\n",
    "formatting": lambda text: re.sub(r" \* ", "*", text),
    "parentheses": lambda text: re.sub(r"return (x \* [\d.]+)\n", r"return (\n        \1\n    )\n", text),
}
QUIET = list(itertools.product(lab.CONTEXTS, SAME))


def cases(all_: list, few: int) -> list:
    """All of them, of which a few are in each run of the tests."""
    every = max(len(all_) // few, 1)
    return [pytest.param(*case, marks=() if i % every == 7 % every else pytest.mark.slow, id="-".join(case)) for i, case in enumerate(all_)]


def run(path, context, numbers, change=str):
    """What a process gives, and what it says of keeping."""
    lab.write(path, lab.sources(context, numbers, change))
    with lab.process(path) as main:
        out = np.asarray(main.program(np.array(lab.X, np.float32)))
        np.testing.assert_allclose(out, np.array(lab.X) * lab.total_of(numbers), rtol=1e-5)
        return lab.notes(main.program), main.program.stats.traces


@pytest.mark.parametrize(("context", "place"), cases(EDITS, GATE))
def test_an_edited_number_is_the_one_that_is_computed_with(shared, tmp_path, context, place):
    """Wherever it stands: the program of before is not found, and the result is the new one."""
    first, _ = run(tmp_path, context, lab.NUMBERS)
    assert [kept for kept, _ in first] == [True], first
    second, traces = run(tmp_path, context, {**lab.NUMBERS, place: lab.NUMBERS[place] + 8})
    assert (traces, len(second)) == (1, 1)


@pytest.mark.parametrize(("context", "change"), cases(QUIET, 3))
def test_an_edit_that_changes_nothing_keeps_its_program(shared, tmp_path, context, change):
    """Comments, formatting, and what the function does not read."""
    run(tmp_path, context, lab.NUMBERS)
    again, traces = run(tmp_path, context, lab.NUMBERS, SAME[change])
    assert (traces, again[0][1]) == (0, "found: neither traced nor lowered in this process")


AROUND = {  # what stands around `program`, before it is called; {} is a number
    "a global that is set later": "K = 1.0\ndef called(x):\n    return x * K\nK = {}\n",
    "a helper that is put in place": "import lab_other\ndef called(x):\n    return lab_other.f(x)\nlab_other.f = lambda x: x * {}\n",
    "a method that is put in place": "import lab_other\ndef called(x):\n    return lab_other.C().f(x)\nlab_other.C.f = lambda self, x: x * {}\n",
    "a function of JAX that is put in place": "import jax\ndef called(x):\n    return jax.numpy.exp(x)\njax.numpy.exp = lambda x: x * {}\n",
    "a data file that is imported": "import pathlib\nK = float(pathlib.Path(__file__ + '.txt').read_text())\ndef called(x):\n    return x * K\n",
    "a variable of the environment that is imported": "import os\nK = float(os.environ['LAB_K'])\ndef called(x):\n    return x * K\n",
    "a closure over a list": "def make(held):\n    def called(x):\n        return x * held[0]\n    return called\ncalled = make([{}])\n",
    "an object of slots": "class S:\n    __slots__ = ('n',)\ns = S()\ns.n = {}\ndef called(x):\n    return x * s.n\n",
    "a mutable default": "def called(x, n=[{}]):\n    return x * n[0]\n",
    "a class made by type": "C = type('C', (), dict(n={}))\ndef called(x):\n    return x * C.n\n",
    "a metaclass": "class M(type):\n    def __getitem__(cls, i):\n        return {}\nclass C(metaclass=M):\n    pass\ndef called(x):\n    return x * C[0]\n",
    "an inherited dict": "class D(dict):\n    pass\nd = D(a={})\ndef called(x):\n    return x * d['a']\n",
    "a simple namespace": "import types\nn = types.SimpleNamespace(a={})\ndef called(x):\n    return x * n.a\n",
    "a default of a lambda": "fs = [lambda x, n=n: x * n for n in ({},)]\ndef called(x):\n    return fs[0](x)\n",
    "a registered rule": "import functools\n@functools.singledispatch\ndef f(x):\n    return x * {}\ndef called(x):\n    return f(x)\n",
    "a remembered result": "import functools\nK = {}\n@functools.cache\ndef k():\n    return K\ndef called(x):\n    return x * k()\n",
    "the names of a module": "K = {}\ndef called(x):\n    return x * globals()['K']\n",
    "an attribute by name": "import lab_other\nlab_other.K = {}\ndef called(x):\n    return x * getattr(lab_other, 'K')\n",
    "a file that is read": "import pathlib\ndef called(x):\n    return x * float(pathlib.Path(__file__ + '.txt').read_text())\n",
    "the environment": "import os\ndef called(x):\n    return x * float(os.environ['LAB_K'])\n",
    "a file that NumPy reads": "import numpy as np\ndef called(x):\n    return x * float(np.loadtxt(__file__ + '.txt'))\n",
    "a module with `__getattr__`": "import lab_lazy\ndef called(x):\n    return x * lab_lazy.K\n",
    "a global that is changed": "K = [{}]\ndef called(x):\n    K.append(0)\n    return x * K[0]\n",
    "code of its own text": "def called(x):\n    return x * eval('{}')\n",
    "an iterator": "def called(x):\n    return x * {}\nit = iter([1.0])\n",
    "a late import": "def called(x):\n    from lab_other import k\n    return x * (k() + {})\n",
    "all names of a module": "from lab_star import *\ndef called(x):\n    return x * STAR\n",
    "code behind an attribute": "def g(x):\n    return x * {}\ndef called(x):\n    return x * g.__code__.co_consts[1]\n",
    "an operator from a table": "import operator\nT = [(operator.mul, {})]\ndef called(x):\n    return T[0][0](x, T[0][1])\n",
    "a jit with static arguments": "import jax, functools\n@functools.partial(jax.jit, static_argnums=1)\ndef g(x, n):\n    return x * n\ndef called(x):\n    return g(x, {})\n",
    "a patched constant of a class": "import lab_other\ndef called(x):\n    return x * lab_other.C.k\nlab_other.C.k = {}\n",
    "a patched dunder": "import lab_other\ndef called(x):\n    return lab_other.C()(x)\nlab_other.C.__call__ = lambda self, x: x * {}\n",
    "a wrapped library function": "import jax.numpy as jnp\nbefore = jnp.tanh\ndef mine(x):\n    return before(x) * 0 + x * {}\ndef called(x):\n    return jnp.tanh(x)\njnp.tanh = mine\n",
}  # fmt: skip
OTHER = "class C:\n    k = 1.0\n    def f(self, x):\n        return x\n    def __call__(self, x):\n        return x\n\n\ndef f(x):\n    return x\n\n\ndef k():\n    return 0.0\n"


@pytest.mark.parametrize("what", [pytest.param(what, marks=() if i % 11 == 3 else pytest.mark.slow) for i, what in enumerate(AROUND)])
def test_what_lies_around_a_function_is_never_stale(folder, tmp_path, monkeypatch, what):
    """Kept or not: the second process computes with what it has."""
    import jax

    before = {name: getattr(jax.numpy, name) for name in ("exp", "tanh")}
    for number in (2.5, 3.5, 3.5):
        text = f"import jitney\n{AROUND[what].replace('{}', repr(number))}\nprogram = jitney.optimize(cache='program')(called)\n"
        lazy = f"def __getattr__(name):\n    return {number}\n"
        lab.write(tmp_path, {"lab_main.py": text, "lab_main.py.txt": str(number), "lab_other.py": OTHER, "lab_lazy.py": lazy,
                             "lab_star.py": f"STAR = {number}\n"})  # fmt: skip
        monkeypatch.setenv("LAB_K", str(number))
        try:
            with lab.process(tmp_path) as main:
                out = np.asarray(main.program(np.ones(2, np.float32)))
        finally:
            for name, fn in before.items():
                monkeypatch.setattr(jax.numpy, name, fn)
        np.testing.assert_allclose(out, number * np.ones(2), rtol=1e-6)


AGAIN = {  # ways in which JAX and Equinox keep a trace, of which the first run in each run of the tests
    "jit": "jax.jit(helper)(x)",
    "filter_jit": "equinox.filter_jit(helper)(x)",
    "checkpoint": "jax.checkpoint(helper)(x)",
    "scan": "jax.lax.scan(body, 0, x)[1]",
    "cond": "jax.lax.cond(x[0] > 0, helper, helper, x)",
    "grad": "jax.grad(total)(x) * x",
    "vmap of jit": "jax.vmap(jax.jit(helper))(x)",
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way == "jit" else pytest.mark.slow) for way in AGAIN])
def test_a_helper_traced_earlier_is_read_as_it_is_now(folder, tmp_path, way):
    """JAX keeps the trace of a function; a program that is kept is made of what the function reads when it is made."""
    text = f"""
    import equinox
    import jax
    import jitney

    K = 2.0


    def helper(x):
        return x * K


    def body(carry, x):
        return carry, helper(x)


    def total(x):
        return jax.numpy.sum(helper(x))


    def called(x):
        return {AGAIN[way]}


    program = jitney.optimize(cache="program")(called)
    """
    lab.write(tmp_path, {"lab_main.py": text})
    x = np.ones(2, np.float32)
    with lab.process(tmp_path) as main:
        main.called(x)
        main.K = 3.0
        np.testing.assert_allclose(main.program(x), 3 * x)
    for number, is_found in ((2.0, False), (3.0, True)):
        with lab.process(tmp_path) as main:
            main.K = number
            np.testing.assert_allclose(main.program(x), number * x)
            assert lab.is_found(main.program) is is_found
