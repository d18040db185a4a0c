"""IPython on a terminal names cells as a notebook does."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.rest


def test_a_function_is_of_its_input(tmp_path):
    """The second input, in the shell that `ipython` starts."""
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "function = '@jitney.optimize\\ndef f(x):\\n    return x'\n"
        "for cell in ['import jitney', function, 'print(f)']:\n"
        "    shell.run_cell(cell, store_history=True).raise_error()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "<jitney program f() at In[2]:1>"
