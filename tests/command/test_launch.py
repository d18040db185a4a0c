"""`run`: a program does what it does under plain Python, and its errors look as they do there."""

import json

import pytest

from jitney._command.arguments import main
from tests.command._scripts import plainly, watched

ABOUT = """
import sys, threading, multiprocessing, pickle
class Kept: pass
shown = (__name__, __file__, __package__, __spec__ and __spec__.name, sys.argv, sys.path[0], sys.flags.dev_mode)
print(shown, type(pickle.loads(pickle.dumps(Kept()))).__module__, sys.modules["__main__"].Kept is Kept)
"""
ENDS = {
    "an error": (
        (
            "def f():\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n       "
            " raise OSError from error\nf()\n"
        ),
        1,
    ),
    "a hook": (
        (
            "import sys\nsys.excepthook = lambda *e: print(e[0], e[2].tb_frame.f_code.co_name, e[2]"
            " is e[1].__traceback__)\n1/0\n"
        ),
        1,
    ),
    "a syntax error": ("x = = 1\n", 1),
    "an exit": ("import sys\nsys.exit(7)\n", 7),
    "a word": ("raise SystemExit('bye')\n", 1),
    "none": ("raise SystemExit\n", 0),
    "an interrupt": ("raise KeyboardInterrupt\n", -2),
    "threads": (
        (
            "import threading, atexit\natexit.register(print,"
            " 'last')\nthreading.Thread(target=lambda: (__import__('time').sleep(0.2),"
            " print('thread'))).start()\n"
        ),
        0,
    ),
    "a branch traced again": (
        (
            "import jax, numpy as np\ndef f(x): return x + 1\n"
            "for n in (2, 3): print(jax.lax.cond(True, f, lambda x: x, np.ones(n)))\n"
        ),
        0,
    ),
}


@pytest.mark.core("an exit", "an interrupt")
@pytest.mark.parametrize("case", ENDS)
def test_a_program_ends_as_it_does_plainly(case, tmp_path):
    """Status, output and traceback are those of plain Python, to the letter; then comes the
    report.
    """
    code, status = ENDS[case]
    (tmp_path / "ends.py").write_text(code)
    plain, seen = plainly(tmp_path, "ends.py"), watched(tmp_path, "ends.py")
    assert (seen.status, seen.out) == (plain.status, plain.out)
    assert plain.status == status
    assert seen.err.startswith(plain.err)
    assert seen.err.removeprefix(plain.err).strip().startswith("jitney: ends.py ran for ")


@pytest.mark.parametrize(
    "typed",
    [
        ("about.py", "a", "--report", "x", "-m", "--", "-h"),
        ("folder/about.py",),
        ("folder",),
        ("-m", "folder.about", "--n", "3"),
        ("-m", "folder"),
    ],
    ids=" ".join,
)
def test_a_program_finds_itself_as_it_does_plainly(typed, tmp_path):
    """Its name, file, package, arguments, the first place of imports; what it defines is found by
    pickle.
    """
    (tmp_path / "folder").mkdir()
    for name in ("about.py", "folder/about.py", "folder/__main__.py"):
        (tmp_path / name).write_text(ABOUT)
    (tmp_path / "folder" / "__init__.py").touch()
    assert watched(tmp_path, *typed).out == plainly(tmp_path, *typed).out != ""


def test_the_command_becomes_the_program(tmp_path):
    """With the options of Python that stand before `-m jitney`, and all that is typed behind the
    program's name.
    """
    (tmp_path / "about.py").write_text(ABOUT)
    typed = ("about.py", "a", "--report", "x.html", "-m", "--", "-h")
    assert (
        plainly(tmp_path, "-X", "dev", "-m", "jitney", "run", *typed).out
        == plainly(tmp_path, "-X", "dev", *typed).out
    )


def test_a_file_that_is_missing_has_status_2(capsys):
    """And a sentence; so has a report that is neither a page nor data."""
    assert main(["run", "nothing.py"]) == 2
    assert "'nothing.py' is not there" in capsys.readouterr().err
    assert main(["run", "--report", "out.txt", __file__]) == 2
    assert "--report 'out.txt' is not a report" in capsys.readouterr().err


@pytest.mark.parametrize(
    "typed", [("-m", "no_such_module"), ("-m", "no_such_package.module")], ids=" ".join
)
def test_what_is_missing_has_status_2(typed, tmp_path):
    """And a sentence; there is nothing to report on."""
    seen = watched(tmp_path, *typed)
    assert (seen.status, seen.out) == (2, "")
    assert "Fix: correct the name" in seen.err
    assert "Traceback" not in seen.err
    assert "ran for" not in seen.err


@pytest.mark.rest
def test_settings_that_a_program_makes_before_its_import_of_jax_count(tmp_path):
    """JAX reads its environment when it is imported, so nothing may have imported it before."""
    (tmp_path / "wide.py").write_text(
        "import os, sys\nassert 'jax' not in sys.modules and 'jitney' not in"
        " sys.modules\nos.environ['JAX_ENABLE_X64'] = '1'\nimport logging;"
        " logging.basicConfig(level=logging.WARNING)\nimport jax.numpy as"
        " jnp\nprint(jnp.ones(3).sum().dtype)\n1/0\n"
    )
    seen = watched(tmp_path, "wide.py", report=str(tmp_path / "out.json"))
    assert (seen.status, seen.out) == (1, "float64\n")
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["target"], told["compiles"]) == ("wide.py", len(told["programs"]))
    assert 0 < told["phases"]["import of jax"] < told["seconds"]
    assert seen.err.startswith("Traceback")
    assert "MISS" not in seen.err
    assert "import of jax" in seen.err
    assert "ones" in seen.err or "broadcast_in_dim" in seen.err


@pytest.mark.rest
def test_memory_over_the_run_is_in_the_report(tmp_path):
    """The peak has its line; beyond the budget there is a line at once, whatever comes then."""
    (tmp_path / "holds.py").write_text(
        "import numpy as np, jax.numpy as jnp\n\ndef hold():\n"
        "    held = np.ones(2**24)\n    return held.sum()\n\nprint(hold(), jnp.ones(3).sum())\n1/0\n"
    )
    seen = watched(tmp_path, "holds.py", memory=str(2**20), report=str(tmp_path / "out.json"))
    assert (seen.status, seen.out) == (1, "16777216.0 3.0\n")
    assert "MiB, more than the budget of 1 MiB, at " in seen.err
    memory = json.loads((tmp_path / "out.json").read_text())["memory"]
    assert memory["peak"]["place"].startswith("holds.py:")
    assert memory["peak"]["bytes"] - memory["peak"]["before"] > 2**27
    assert main(["report", str(tmp_path / "out.json"), str(tmp_path / "out.html")]) == 0
    assert "Memory over time" in (tmp_path / "out.html").read_text()


def test_a_budget_that_is_no_size_has_status_2(capsys):
    """And a sentence."""
    assert main(["run", "--budget", "much", __file__]) == 2
    assert "--budget 'much' is not a size" in capsys.readouterr().err
