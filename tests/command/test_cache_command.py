"""`cache ls`, `info`, `clear`, `prune`: on a folder with four entries of known size and age."""

import io
import json
import os
import time

import pytest

from jitney._command.arguments import main
from jitney._command.cache import command as cache_command
from jitney._jax.compile_cache import entries as cache_entries
from jitney.types import CacheFacts

DAY = 86400
KEY = "0123456789abcdef" * 4


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Four programs of 1000 bytes, last used 1, 10, 20 and 40 days ago, and a file that is none of
    JAX's.
    """
    for name, days in (("jit_new", 1), ("jit_recent", 10), ("jit_old", 20), ("jit_oldest", 40)):
        path = tmp_path / f"{name}-{KEY}-cache"
        path.write_bytes(bytes(1000))
        path.with_name(f"{name}-{KEY}-atime").write_bytes(bytes(8))
        os.utime(path, (time.time() - days * DAY,) * 2)
    (tmp_path / "notes.txt").write_text("mine")
    facts = CacheFacts(enabled=True, directory=tmp_path, size_limit=2**31, reason="on by default")
    monkeypatch.setattr(cache_command.cache, "ensure", lambda: None)
    monkeypatch.setattr(cache_command.cache, "facts", lambda: facts)
    return tmp_path


def left(folder):
    """The programs that are there, by name; each has its stamp, and nothing else is gone."""
    names = {path.name for path in folder.iterdir()}
    programs = sorted(
        name.split("-")[0].removeprefix("jit_") for name in names if name.endswith("-cache")
    )
    assert (
        sorted(name.split("-")[0].removeprefix("jit_") for name in names if name.endswith("-atime"))
        == programs
    )
    assert "notes.txt" in names
    return programs


def test_programs_are_listed_by_last_use(folder, capsys):
    """With JAX's name of each and its size."""
    assert main(["cache", "ls", "--json"]) == 0
    programs = json.loads(capsys.readouterr().out)["programs"]
    assert [(each["program"], each["bytes"]) for each in programs] == [
        (f"jit_{name}", 1000) for name in ("new", "recent", "old", "oldest")
    ]
    assert main(["cache", "ls"]) == 0
    assert "4 programs, 3.9 KiB" in capsys.readouterr().out


def test_info_says_where_and_how_large(folder, capsys):
    """And why."""
    assert main(["cache", "info", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info == {
        "directory": str(folder),
        "enabled": True,
        "reason": "on by default",
        "programs": 4,
        "bytes": 4000,
        "limit": 2**31,
    }
    assert main(["cache", "info"]) == 0
    assert str(folder) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "stay"),
    [
        (["--older-than", "30d"], ["new", "old", "recent"]),
        (["--older-than", "2w"], ["new", "recent"]),
        (["--larger-than", "2KB"], ["new", "recent"]),
        (["--larger-than", "2001"], ["new", "recent"]),
        (["--larger-than", "0"], []),
        (["--older-than", "15d", "--larger-than", "1KB"], ["new"]),
        (["--older-than", "90d"], ["new", "old", "oldest", "recent"]),
    ],
)
def test_prune_deletes_what_its_options_name(options, stay, folder):
    """And their stamps, and nothing else."""
    assert main(["cache", "prune", *options, "--yes"]) == 0
    assert left(folder) == stay


def test_prune_deletes_what_is_damaged(folder):
    """1000 zeros are no entry of either format."""
    sound = b"program" * 50
    (folder / f"jit_old-{KEY}-cache").write_bytes(cache_entries.CODEC.compress(sound))
    assert main(["cache", "prune", "--damaged", "--yes"]) == 0
    assert left(folder) == ["old"]


@pytest.mark.parametrize(("answer", "status", "count"), [("y\n", 0, 0), ("n\n", 1, 4), ("", 1, 4)])
def test_clear_asks(answer, status, count, folder, monkeypatch, capsys):
    """Where nobody answers it is no."""
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert main(["cache", "clear"]) == status
    assert len(left(folder)) == count
    assert "Delete 4 of 4 programs (3.9 KiB)" in capsys.readouterr().out


def test_clear_does_not_ask_who_is_sure(folder, capsys):
    """And says so where there is nothing any more."""
    assert main(["cache", "clear", "--yes"]) == 0
    assert main(["cache", "clear", "--yes"]) == 0
    assert left(folder) == []
    assert "Nothing to delete" in capsys.readouterr().out


def test_a_cache_that_is_off_says_why(monkeypatch, capsys):
    """On stderr, with a status."""
    monkeypatch.setattr(cache_command.cache, "ensure", lambda: None)
    monkeypatch.setattr(
        cache_command.cache,
        "facts",
        lambda: CacheFacts(False, None, None, "turned off by JITNEY_CACHE"),
    )
    assert main(["cache", "ls"]) == 1
    assert "There is no cache: turned off by JITNEY_CACHE." in capsys.readouterr().err
