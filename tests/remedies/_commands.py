"""Remedies of the command line, which runs here: what it writes to stderr is the message, and a
status of 0 or 1 is the end of a remedy.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
from unittest.mock import patch

from jitney._command.arguments import main

from ._case import Remedy

SCRIPT = """
import jax.numpy as jnp
from jaxtyping import Array, Float
from jitney import optimize

@optimize
def total(x: Float[Array, "n"]):
    return jnp.sum(x**2)

def pairs(x: Float[Array, "n"]):
    return jnp.sum(jnp.sort(jnp.outer(x, jnp.arange(64.0)), axis=1)[:, 0])

@optimize(chunk={"n": 16})
def pairs_in_chunks(x: Float[Array, "n"]):
    return pairs(x)

def powers(x: Float[Array, "n"], order: int):
    return jnp.sum(x**order)

def bare(x):
    return jnp.sum(x**2)

def told(x: Float[Array, "..."]):
    return jnp.sum(x**2)

number = 3

def lines(n):
    return [jnp.ones(n)]

def arguments(n):
    return {"x": jnp.ones(n)}

def plain(x: Float[Array, "n"]):
    return jnp.sum(x**2)
"""
BENCH, FIND, TYPED, WARM = (
    "_command/bench/inputs.py",
    "_command/bench/target.py",
    "_command/bench/parsing.py",
    "_command/cache/warming.py",
)


class Told(Exception):
    """What a command has written to stderr."""


def command(*words):
    """A command in this folder, with the script in it."""
    pathlib.Path("remedied.py").write_text(SCRIPT)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = main(words)
        except SystemExit as ended:
            status = ended.code
    if status not in (0, 1):
        raise Told(said.getvalue())


def bench(function, *words):
    """A measurement of a function of the script, as short as can be."""
    return command(
        "bench", f"remedied.py:{function}", *words, "--seconds", "0.01", "--out", "out.html"
    )


def bench_within(free, *sizes):
    """A measurement where so many bytes are free; what it leaves out it says, with status 1."""
    said = io.StringIO()
    pathlib.Path("remedied.py").write_text(SCRIPT)
    with (
        patch("jitney._command.bench.measuring.free_bytes", lambda: free),
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        words = ("--sizes", *sizes, "--seconds", "0.01", "--out", "out.html")
        status = main(("bench", *words))
    if status != 0:
        raise Told(said.getvalue())


def warm(text):
    pathlib.Path("warm.toml").write_text(text)
    return command("cache", "warm", "warm.toml")


def setting(line):
    """A measurement of a file that begins with a setting of JAX's."""
    pathlib.Path("setting.py").write_text(f"import os, jax\n{line}\n{SCRIPT}")
    with patch.dict(os.environ):
        return command(
            "bench", "setting.py:total", *SIZES, "--seconds", "0.01", "--out", "out.html"
        )


SIZES = ("--sizes", "n=4,8")
GOOD = """[[warm]]
function = "remedied:total"
sizes = { n = [4, 8] }
"""


def good():
    return bench("total", *SIZES)


CASES = [
    Remedy(
        "_command/arguments.py:_Parser.error",
        "see `… --help`",
        lambda: command("bench"),
        lambda: command("--help"),
        core=True,
    ),
    Remedy(
        "_command/bench/command.py:carry_out",
        "write --out bench.svg",
        lambda: command("bench", "remedied.py:total", *SIZES, "--out", "x.png"),
        lambda: command(
            "bench", "remedied.py:total", *SIZES, "--seconds", "0.01", "--out", "bench.svg"
        ),
    ),
    Remedy(
        "_command/bench/command.py:carry_out",
        "write --seconds 5",
        lambda: command("bench", "remedied.py:total", *SIZES, "--seconds", "0"),
        good,
    ),
    Remedy(
        "_command/bench/command.py:carry_out",
        "end the range before it",
        lambda: bench_within(24, "n=4,8", "remedied.py:total"),
        lambda: bench_within(24, "n=4", "remedied.py:total"),
    ),
    Remedy(
        "_command/bench/command.py:carry_out",
        "or give `chunk=` or `memory=`",
        lambda: bench_within(20_000, "n=64,4096", "remedied.py:pairs"),
        lambda: bench_within(20_000, "n=64,4096", "remedied.py:pairs_in_chunks"),
    ),
    Remedy(
        "_command/bench/command.py:_draw",
        "correct the name",
        lambda: command(
            "bench", "remedied.py:total", *SIZES, "--seconds", "0.01", "--out", "no/out.html"
        ),
        good,
    ),
    Remedy(
        f"{BENCH}:Maker._make_data",
        "add --sizes …=8",
        lambda: bench("bare", "--arguments", "arguments"),
        lambda: bench("bare", "--arguments", "arguments", *SIZES),
    ),
    Remedy(
        f"{BENCH}:Maker._make_data",
        'have it `return {"model": model}`',
        lambda: bench("bare", "--arguments", "lines", *SIZES),
        lambda: bench("bare", "--arguments", "arguments", *SIZES),
    ),
    Remedy(
        f"{BENCH}:Maker._check",
        "did you mean",
        lambda: bench("powers", "--set", "orders=3", *SIZES),
        lambda: bench("powers", "--set", "order=3", *SIZES),
    ),
    Remedy(
        f"{BENCH}:Maker._check", "correct the name", lambda: bench("total", "--sizes", "m=4"), good
    ),
    Remedy(
        f"{BENCH}:Maker._check_value",
        "add --sizes …=8",
        lambda: bench("total"),
        lambda: bench("total", "--sizes", "n=8"),
    ),
    Remedy(
        f"{BENCH}:Maker._check_value",
        "add --set …=..., a value",
        lambda: bench("powers", *SIZES),
        lambda: bench("powers", *SIZES, "--set", "order=2"),
    ),
    Remedy(
        f"{BENCH}:Maker._check_value", "annotate it, …: Float[Array,", lambda: bench("bare"), good
    ),
    Remedy(
        f"{BENCH}:Maker._check_value",
        ".",
        lambda: bench("told"),
        lambda: bench("told", "--arguments", "arguments", *SIZES),
    ),
    Remedy(
        f"{BENCH}:maker",
        ".",
        lambda: bench("bare", "--arguments", "number"),
        lambda: bench("bare", "--arguments", "arguments", *SIZES),
    ),
    Remedy(f"{FIND}:find", "write script.py:function", lambda: command("bench", "remedied"), good),
    Remedy(f"{FIND}:find", "name one", lambda: bench("number"), good),
    Remedy(f"{FIND}:attribute", "correct the name", lambda: bench("totals"), good),
    Remedy(
        f"{FIND}:_file",
        "correct the name, or start where it is found",
        lambda: command("bench", "elsewhere.py:f"),
        good,
    ),
    Remedy(
        f"{FIND}:_file",
        "or use jax.config.update in the file",
        lambda: setting('os.environ["JAX_LOG_COMPILES"] = "0"'),
        lambda: setting('jax.config.update("jax_log_compiles", False)'),
    ),
    Remedy(
        f"{FIND}:_module",
        "a file is `script.py:function`",
        lambda: command("bench", "no_such_module:f"),
        good,
    ),
    Remedy(
        f"{TYPED}:_wrong",
        "correct it: --sizes",
        lambda: bench("total", "--sizes", "n=many"),
        lambda: bench("total", "--sizes", "n=1e1:1e2"),
    ),
    Remedy(
        f"{TYPED}:read_sizes",
        "give fewer sizes",
        lambda: bench("total", "--sizes", "n=1:1e6:900", "--sizes", "k=1,2"),
        lambda: bench("total", "--sizes", "n=1e1:1e2:3"),
    ),
    Remedy(
        f"{TYPED}:read_values",
        "write --set order=3",
        lambda: bench("powers", *SIZES, "--set", "3"),
        lambda: bench("powers", *SIZES, "--set", "order=3"),
    ),
    Remedy(
        f"{WARM}:read",
        "name a file that is there",
        lambda: command("cache", "warm", "cold.toml"),
        lambda: warm(GOOD),
    ),
    Remedy(f"{WARM}:read", "correct that line", lambda: warm("[[warm"), lambda: warm(GOOD)),
    Remedy(
        f"{WARM}:read", "write [[warm]] above each entry", lambda: warm("a = 1"), lambda: warm(GOOD)
    ),
    Remedy(
        f"{WARM}:_entry", "write [[warm]] above it", lambda: warm("warm = [1]"), lambda: warm(GOOD)
    ),
    Remedy(
        f"{WARM}:_entry",
        "correct or remove it",
        lambda: warm(GOOD + "size = 3"),
        lambda: warm(GOOD),
    ),
    Remedy(
        f"{WARM}:_entry",
        'write "pkg.module:name"',
        lambda: warm(GOOD.replace(":total", "")),
        lambda: warm(GOOD),
    ),
    Remedy(
        f"{WARM}:_entry",
        "write sizes = { n = [256, 512] }",
        lambda: warm(GOOD.replace("{ n = [4, 8] }", "4")),
        lambda: warm(GOOD),
    ),
    Remedy(
        f"{WARM}:_sizes",
        "write one size, or a list of sizes",
        lambda: warm(GOOD.replace("[4, 8]", "1.5")),
        lambda: warm(GOOD),
    ),
    Remedy(
        f"{WARM}:_program",
        "correct the name",
        lambda: warm(GOOD.replace("total", "totals")),
        lambda: warm(GOOD),
    ),
    Remedy(
        f"{WARM}:_program",
        "decorate it with @jitney.optimize",
        lambda: warm(GOOD.replace("total", "plain")),
        lambda: warm(GOOD),
    ),
    Remedy(
        f"{WARM}:_program",
        "start where it can be, or set PYTHONPATH",
        lambda: warm(GOOD.replace("remedied", "no_such_module")),
        lambda: warm(GOOD),
    ),
]
