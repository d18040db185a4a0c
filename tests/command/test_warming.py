"""`cache warm FILE`: what is compiled, and what is said of a file that is not right."""

import sys

import jax
import numpy as np
import pytest

import jitney
from jitney._command.arguments import main

MODULE = """
import jax.numpy as jnp
from jaxtyping import Array, Float
import jitney

@jitney.optimize
def residual(x: Float[Array, "n"], y: Float[Array, "n m"]) -> Float[Array, "m"]:
    return jnp.cosh(x) @ y * {factor}

def plain(x):
    return x

class Fit:
    @jitney.optimize
    def loss(x: Float[Array, "n"]) -> Float[Array, ""]:
        return jnp.sum(jnp.arctan(x))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module in the working directory, with a name that no other test has."""
    name = f"warmed_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        MODULE.replace("{factor}", str(np.random.default_rng().uniform()))
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def test_each_size_with_each_other_is_compiled(module, tmp_path, capsys):
    """Ahead of time: calls with these sizes compile nothing; a later process finds the programs in
    the cache.
    """
    (tmp_path / "warm.toml").write_text(f'''
        [[warm]]
        function = "{module}:residual"
        sizes = {{ n = [3, 4], m = 2 }}
        [[warm]]
        function = "{module}:Fit.loss"
        sizes = {{ n = 5 }}
    ''')
    assert main(["cache", "warm", "warm.toml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].split(" ", 1)[1] for line in lines] == ["n=3 m=2", "n=4 m=2", "n=5"]
    assert all("compiled, " in line or "in the cache already" in line for line in lines)
    with jitney.no_compiles():
        for n in (3, 4):
            sys.modules[module].residual(np.ones(n, np.float32), np.ones((n, 2), np.float32))
    jax.clear_caches()
    sys.modules[module].residual.clear_cache()
    with jitney.watch() as seen:
        sys.modules[module].residual(np.ones(3, np.float32), np.ones((3, 2), np.float32))
    assert [(work.compiles, work.cache_hits) for work in seen.work if work.name == "residual"] == [
        (0, 1)
    ]


ENTRY = '[[warm]]\nfunction = "MODULE:{}"\n'
WRONG = {
    "no file of ours": ("a = 1", "'a' where"),
    "no TOML": ("[[warm", "no TOML"),
    "an unknown key": (ENTRY.format("residual") + "size = 3", "entry 1: 'size' is not known"),
    "no function": ("[[warm]]\nsizes = {n = 3}", "entry 1: function=None"),
    "no module": (
        '[[warm]]\nfunction = "no_such_module:f"',
        "entry 1 (no_such_module:f): 'no_such_module' cannot be imported",
    ),
    "no such name": (ENTRY.format("resid"), "entry 1 (MODULE:resid): 'resid' is not in"),
    "undecorated": (ENTRY.format("plain"), "entry 1 (MODULE:plain): it is not a program of jitney"),
    "no size": (
        ENTRY.format("residual") + "sizes = {n = 1.5}",
        "entry 1: sizes of axis 'n' are 1.5",
    ),
    "no true size": (
        ENTRY.format("residual") + "sizes = {n = true}",
        "entry 1: sizes of axis 'n' are True",
    ),
    "a size is missing": (
        ENTRY.format("residual") + "sizes = {n = 3}",
        "entry 1 (MODULE:residual), sizes n=3:",
    ),
    "an unknown axis": (
        ENTRY.format("residual") + "sizes = {n = 3, m = 2, k = 1}",
        "entry 1 (MODULE:residual), sizes n=3 m=2 k=1:",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_the_entry(case, module, tmp_path, capsys):
    """Where, what, and the fix; status 2."""
    text, said = WRONG[case]
    (tmp_path / "warm.toml").write_text(text.replace("MODULE", module))
    assert main(["cache", "warm", "warm.toml"]) == 2
    shown = capsys.readouterr().err
    assert said.replace("MODULE", module) in shown
    assert "Fix: " in shown
