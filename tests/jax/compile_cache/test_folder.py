"""The folder of the compilation cache: the user's own, or none."""

import os
import sys

import pytest

from jitney._jax.compile_cache import cache as _cache
from jitney._jax.compile_cache import entries as _entries
from jitney._jax.compile_cache import folder as _folder
from tests.jax.compile_cache._processes import POSIX, UNTOUCHED, process


def a_file(path):
    path.write_text("")


def below_a_file(path):
    path.parent.rmdir()
    path.parent.write_text("")


def open_to_others(path):
    path.mkdir()
    path.chmod(0o777)


def a_link_to_nothing(path):
    path.symlink_to(path.parent / "nowhere")


def a_link_to_an_open_folder(path):
    open_to_others(path.parent / "open")
    path.symlink_to(path.parent / "open")


def a_link_to_itself(path):
    path.symlink_to(path)


def a_file_inside(path):
    path.mkdir(mode=0o700)
    (path / _entries.NAME).write_text("")


@POSIX
@pytest.mark.parametrize(
    "make",
    [
        a_file,
        below_a_file,
        open_to_others,
        a_link_to_nothing,
        a_link_to_an_open_folder,
        a_link_to_itself,
        a_file_inside,
    ],
)
def test_a_folder_that_cannot_be_trusted_is_refused(tmp_path, make):
    """With the reason and a fix, and without an exception."""
    base = tmp_path / "parent" / "cache"
    base.parent.mkdir()
    make(base)
    refusal = _folder.prepare(base)
    assert refusal is not None
    assert refusal.what
    assert refusal.fix


@POSIX
def test_a_folder_that_others_could_write_is_not_to_be_closed_but_left(tmp_path):
    """A `chmod` would make what they planted the user's own."""
    open_to_others(tmp_path / "cache")
    refusal = _folder.prepare(tmp_path / "cache")
    assert refusal is not None
    assert "chmod" not in refusal.fix
    assert "new folder" in refusal.fix


@POSIX
@pytest.mark.parametrize(("mode", "taken"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_folder_above_counts_unless_each_keeps_their_own_there(tmp_path, mode, taken):
    """Whoever can write it could put another folder in the place of the cache; /tmp has a sticky
    bit.
    """
    above = tmp_path / "above"
    (above / "mine").mkdir(parents=True)
    above.chmod(mode)
    refusals = [_folder.prepare(above / "mine" / "cache"), _folder.prepare(above / "new")]
    (tmp_path / "link").symlink_to(above / "mine")
    refusals.append(_folder.prepare(tmp_path / "link" / "cache"))
    assert [refusal is None for refusal in refusals] == [taken] * 3
    assert all(
        refusal is None or f"lies below {above}, which other users can write" in refusal.what
        for refusal in refusals
    )


@pytest.mark.rest
@POSIX
def test_a_loose_umask_leaves_no_folder_to_others(tmp_path):
    """Folders above that are made on the way are private too, and so is each entry."""
    code = """
        os.umask(0)
        _cache.ensure()
        compiled(2.0)
        made = [Path(base), Path(base).parent, *_cache.facts().directory.iterdir()]
        out["modes"] = [oct(p.stat().st_mode & 0o777) for p in made]
    """
    assert process(code, tmp_path / "above" / "cache")["modes"] == ["0o700", "0o700", "0o600"]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)
def test_a_folder_with_files_of_another_user_is_refused(tmp_path):
    """They were planted while it was open."""
    planted = tmp_path / "cache" / _entries.NAME / "jit_f-0-cache"
    assert _folder.prepare(tmp_path / "cache") is None
    planted.write_bytes(b"code")
    os.chown(planted, os.geteuid() + 1, -1)
    refusal = _folder.prepare(tmp_path / "cache")
    assert refusal is not None
    assert "files of another user" in refusal.what
    assert "new folder" in refusal.fix


@pytest.mark.rest
@POSIX
@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_path_that_is_not_utf8_is_a_sentence(tmp_path):
    """XLA takes no such path: with the cache, nothing would compile."""
    code = """
        out["warned"] = warned()
        out["run"] = [compiled(2.0), _cache.facts().reason]
    """
    out = process(code, os.fsdecode(bytes(tmp_path / "caf") + b"\xe9"))
    assert len(out["warned"]) == 1
    assert "caf\\xe9 is not UTF-8" in out["warned"][0]
    assert out["run"][0] == "past"


@pytest.mark.parametrize("named", ["gs://bucket/cache", "s3://bucket"])
def test_a_remote_folder_is_refused(tmp_path, monkeypatch, named):
    """Its owner and mode cannot be checked; JAX's own setting takes one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JITNEY_CACHE_DIR", named)
    assert _folder.prepare(_cache._default_base()) is not None
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_a_link_to_a_folder_of_ones_own_is_fine(tmp_path):
    """Homes are often links to larger disks."""
    (tmp_path / "large").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "large")
    assert _folder.prepare(tmp_path / "cache") is None


@POSIX
def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    """Whoever owns it could put code there."""
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    (tmp_path / "cache").mkdir(mode=0o700)
    refusal = _folder.prepare(tmp_path / "cache")
    assert refusal is not None
    assert "another user" in refusal.what


@pytest.mark.rest
@POSIX
def test_a_folder_that_takes_no_more_is_one_warning_and_a_run_without_it(tmp_path):
    """Writes fail, as on a full disk or past a quota; programs still run, JAX's settings are
    untouched.
    """
    code = """
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        out["warned"] = [warned(), warned()]
        out["state"] = [compiled(2.0), float(jax.jit(lambda x: x + 1)(1.0)), jax_says(), _cache.facts().enabled]
    """
    out = process(code, tmp_path)
    first, again = out["warned"]
    assert len(first) == 1
    assert again == []
    assert "cannot be used" in first[0]
    assert "Fix: set JITNEY_CACHE_DIR" in first[0]
    assert out["state"] == ["past", 2.0, UNTOUCHED, False]


def test_a_full_disk_is_refused(tmp_path, monkeypatch):
    """What is free is asked of the system."""
    usage = type(_folder.shutil.disk_usage(tmp_path))
    monkeypatch.setattr(_folder.shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 2**20, 2**20))
    refusal = _folder.prepare(tmp_path / "cache")
    assert refusal is not None
    assert "full disk (1 MiB free)" in refusal.what


@pytest.mark.rest
def test_a_folder_that_vanishes_is_made_again(tmp_path):
    """Caches are deleted by hand; the next program must not fail or warn."""
    code = """
        import shutil
        _cache.ensure()
        compiled(2.0)
        shutil.rmtree(base)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _cache.ensure()
            out["again"] = [compiled(2.0), compiled(2.0)]
    """
    assert process(code, tmp_path / "new")["again"] == ["kept", "hit"]
