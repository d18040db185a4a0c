"""Programs of a script or a notebook in other processes, which have another `__main__`."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
SCRIPT = """\
import multiprocessing
import pickle
import sys

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jitney
from tests.interface._copying import dumps

SCALE = 2.0


def scaled(x):
    return SCALE * x


@jitney.lazy_derivatives(wrt="x")
@jitney.optimize(pad={"n": "pow2"})
def total(x: Float[Array, "n"]) -> Float[Array, ""]:
    return jnp.sum(scaled(x))

"""
LOAD = """\
import pickle, sys
import numpy as np
sent = pickle.load(sys.stdin.buffer)
programs = [pickle.loads(each) for each in sent]
for rows, program in enumerate(programs, 5):
    print(program(np.ones(rows, np.float32)), program.grad(np.ones(rows, np.float32))[0])
print(len({id(program) for program in programs}), [int(p.stats.traces) for p in programs])
"""


@pytest.fixture
def run(tmp_path):
    """Runs a script that goes on from `SCRIPT`, and returns what it prints."""

    def running(code: str) -> bytes:
        (tmp_path / "script.py").write_text(SCRIPT + code)
        done = subprocess.run(
            [sys.executable, str(tmp_path / "script.py")], env=ENV, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return running


@pytest.mark.rest
def test_by_its_name_it_is_itself(run):
    """As a function of `__main__` is, by each protocol of pickle; also in a process that runs the
    script again.
    """
    out = run(
        "if __name__ == '__main__':\n"
        "    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):\n"
        "        assert pickle.loads(pickle.dumps(total, protocol)) is total\n"
        "    assert pickle.loads(dumps(total)) is total\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(total, [np.ones(3, np.float32)])[0])\n"
    )
    assert out.split() == [b"6.0"]


@pytest.mark.rest
def test_copies_of_equal_content_are_one_program(run):
    """In a worker with another `__main__`: sizes 5 and 6 share the trace of one copy, and what a
    changed global leads to is another program, with the new value.
    """
    sent = run(
        "copies = [dumps(total), dumps(total)]\n"
        "SCALE = 3.0\n"
        "sys.stdout.buffer.write(pickle.dumps([*copies, dumps(total)]))\n"
    )
    assert len(pickle.loads(sent)) == 3
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env=ENV, input=sent, capture_output=True, check=True
    )
    assert done.stdout.decode().splitlines() == [
        "10.0 2.0",
        "12.0 2.0",
        "21.0 3.0",
        "2 [1, 1, 1]",
    ]
