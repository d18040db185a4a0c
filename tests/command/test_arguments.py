"""What is typed at `python -m jitney`: what is not understood is a sentence and status 2."""

import subprocess
import sys

import pytest

from jitney._command.arguments import main


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["dctor"], "invalid choice: 'dctor'"),
        ([], "COMMAND"),
        (["cache"], "WHAT"),
        (["doctor", "--jsn"], "unrecognized arguments: --jsn"),
        (["cache", "prune"], "does not say what goes"),
        (["cache", "prune", "--older-than", "soon"], "'soon' is not an age"),
        (["cache", "prune", "--larger-than", "much"], "'much' is not a size"),
        (["cache", "warm", "missing.toml"], "missing.toml: it cannot be read"),
    ],
)
def test_what_is_not_understood_has_status_2(typed, said, capsys):
    """With what is wrong, the rule and the fix on stderr, and nothing on stdout."""
    try:
        status = main(typed)
    except SystemExit as stopped:
        status = stopped.code
    shown = capsys.readouterr()
    assert status == 2
    assert said in shown.err
    assert "Fix: " in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_the_module_runs_as_a_command():
    """`python -m jitney` with its name in its usage, and no backend of JAX started for it."""
    done = subprocess.run(
        [sys.executable, "-m", "jitney", "cache", "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage: python -m jitney cache" in done.stdout
