"""Files that are replaced as a whole, under faults."""

import errno
import io
import os
import subprocess
import sys
import threading

import pytest

from jitney._host import atomic_files
from jitney._host.atomic_files import UNFINISHED, replace_file


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    return path


def alone(file):
    """The file with its content, and nothing beside it."""
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    return file.read_bytes()


def test_the_new_content_is_there(file):
    """For this user alone, if that is asked."""
    replace_file(file, b"new", private=True, durable=True)
    assert alone(file) == b"new"
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("when", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(file, monkeypatch, when):
    """Whenever the system says so."""

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    class Full(io.FileIO):
        write = full

    if when == "write":
        monkeypatch.setattr(atomic_files, "open", lambda *_, **__: Full(file, "a"), raising=False)
    elif when == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new", durable=True)
    assert alone(file) == b"old"


def test_an_interrupt_leaves_the_old_file(file, monkeypatch):
    """Ctrl-C behind the last byte."""

    def interrupt(_handle):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(file, b"new", durable=True)
    assert alone(file) == b"old"


@pytest.mark.rest
def test_a_killed_process_leaves_the_old_file_and_an_unfinished_one(file):
    """Which no other write trips over."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from jitney._host.atomic_files import replace_file\n"
        "os.fsync = lambda handle: os.kill(os.getpid(), 9)\n"
        "replace_file(Path(sys.argv[1]), b'new' * 1000, durable=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], check=False)
    assert done.returncode == -9
    assert file.read_bytes() == b"old"
    assert [e.name for e in file.parent.iterdir() if e.name.startswith(f"kept{UNFINISHED}")]
    replace_file(file, b"newer")
    assert file.read_bytes() == b"newer"


def test_a_folder_that_cannot_be_written_says_so(tmp_path):
    """In the system's words."""
    with pytest.raises(OSError, match="No such file"):
        replace_file(tmp_path / "none" / "kept", b"new")


def test_of_two_writers_one_is_read(file):
    """Never a mixture."""
    contents = [bytes([65 + k]) * 100_000 for k in range(4)]
    seen = set()

    def write(content):
        for _ in range(20):
            replace_file(file, content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for each in threads:
        each.start()
    while any(each.is_alive() for each in threads):
        seen.add(file.read_bytes())
    assert seen <= {b"old", *contents}
    assert alone(file) in contents
