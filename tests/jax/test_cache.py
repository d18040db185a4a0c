"""The persistent compilation cache: on by default, private, never in the way of a setting made in JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import pytest

from jitney._errors import OptionError
from jitney._jax import cache as _cache
from jitney._jax import cache_entries as _entries
from jitney._jax import cache_folder as _folder

SRC = str(Path(_cache.__file__).parents[2])
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="owners and modes are POSIX")

PRELUDE = """
import json, os, resource, threading, warnings
from pathlib import Path
import jax, jax.numpy as jnp
from jitney._jax import cache as _cache
from jitney._errors import JitneyWarning

events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))

def compiled(factor):
    '''How a new program is compiled: from the cache, into it, or past it.'''
    events.clear()
    jax.jit(lambda x: x * factor + 1).lower(jax.ShapeDtypeStruct((3,), jnp.float32)).compile()
    return "hit" if "cache_hits" in events else "kept" if "cache_misses" in events else "past"

def warned(fn=_cache.ensure):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fn()
    return [str(w.message) for w in caught if issubclass(w.category, JitneyWarning)]

def jax_says():
    return [jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs,
            jax.config.jax_compilation_cache_max_size, jax.config.jax_enable_compilation_cache]

out = {}
base = os.environ.get("JITNEY_CACHE_DIR")
"""
UNTOUCHED = [None, 1.0, -1, True]


def process(code, base=None, **environment):
    """Run code in a fresh process and return what it put into `out`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JITNEY_", "JAX_", "XDG_"))}
    env = {**clean, "JAX_PLATFORMS": "cpu", "PYTHONPATH": SRC, **environment}
    if base is not None:
        env["JITNEY_CACHE_DIR"] = str(base)
    program = PRELUDE + textwrap.dedent(code) + "\nprint(json.dumps(out, default=str))"
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_process_compiles_nothing_again(tmp_path):
    """The first process keeps its programs, also after a compile without cache; the second reads them."""
    code = """
        out["before"] = compiled(2.0)
        _cache.ensure()
        out["after"] = [compiled(3.0), compiled(4.0)]
        out["facts"] = vars(_cache.facts())
        out["mode"] = [oct(p.stat().st_mode & 0o777) for p in (Path(base), _cache.facts().directory)]
    """
    first, second = process(code, tmp_path / "new"), process(code, tmp_path / "new")
    assert (first["before"], first["after"]) == ("past", ["kept", "kept"])
    assert (second["before"], second["after"]) == ("past", ["hit", "hit"])
    assert first["facts"]["enabled"]
    assert first["facts"]["directory"] == str(tmp_path / "new" / _entries.NAME)
    assert first["facts"]["size_limit"] == 2 * 2**30
    assert os.name != "posix" or first["mode"] == ["0o700", "0o700"]


def test_the_default_folder_is_the_users_cache_folder(tmp_path):
    """As `platformdirs` has it, which on Linux follows XDG_CACHE_HOME."""
    code = """
        import platformdirs
        out["home"] = [platformdirs.user_cache_dir("jitney"), warned(), _cache.facts().directory]
    """
    home, warnings, directory = process(code, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path))["home"]
    assert Path(directory).is_relative_to(home)
    assert Path(home).is_relative_to(tmp_path)
    assert not warnings


def test_a_program_can_be_compiled_past_the_cache(tmp_path):
    """Neither read nor written inside `disabled`, nested, after an error, and across threads; as before outside."""
    code = """
        _cache.ensure()
        compiled(2.0)
        try:
            with _cache.disabled():
                with _cache.disabled():
                    inside = [compiled(2.0)]
                inside += [compiled(2.0), compiled(3.0)]
                thread = threading.Thread(target=lambda: (_cache.ensure(), inside.append(compiled(4.0))))
                thread.start(); thread.join()
                out["facts inside"] = _cache.facts().enabled
                raise ValueError
        except ValueError:
            pass
        _cache.ensure()
        out["inside"], out["outside"] = inside, [compiled(2.0), compiled(3.0)]
        out["jax"] = jax_says()[3]
    """
    out = process(code, tmp_path)
    assert out["inside"] == ["past"] * 4
    assert out["outside"] == ["hit", "kept"]
    assert out["facts inside"]
    assert out["jax"]


def test_many_threads_turn_it_on_once(tmp_path):
    """No thread sees half a setting."""
    code = """
        start = threading.Barrier(8)
        def work(i):
            start.wait()
            _cache.ensure()
            with _cache.disabled() if i % 2 else threading.Lock():
                jax.jit(lambda x: x * float(i))(1.0)
            _cache.ensure()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        out["state"] = [_cache.facts().enabled, compiled(99.0), compiled(99.0)]
    """
    assert process(code, tmp_path)["state"] == [True, "kept", "hit"]


def test_it_is_turned_off_and_changed_while_the_process_runs(tmp_path):
    """`configure` applies from the next compile on, and gives JAX's settings back when it turns the cache off."""
    code = """
        _cache.ensure()
        first = [compiled(2.0)]
        _cache.configure(cache_dir=Path(base) / "other", cache_size="1 MiB")
        out["moved"] = [compiled(2.0), vars(_cache.facts())]
        _cache.configure(cache=False)
        out["off"] = [compiled(2.0), jax_says(), _cache.facts().reason]
        _cache.configure(cache=True, cache_size="unlimited")
        out["again"] = [compiled(2.0), vars(_cache.facts())]
        out["same"] = warned()
    """
    out = process(code, tmp_path)
    assert out["moved"][0] == "kept"
    assert out["moved"][1]["directory"] == str(tmp_path / "other" / _entries.NAME)
    assert out["moved"][1]["size_limit"] == 2**20
    assert out["off"][:2] == ["past", UNTOUCHED]
    assert "turned off" in out["off"][2]
    assert out["again"][0] == "hit"
    assert out["again"][1]["size_limit"] is None
    assert out["same"] == []


@pytest.mark.parametrize("word", ["off", "OFF", "0", "false"])
def test_an_environment_variable_turns_it_off(tmp_path, monkeypatch, word):
    """No folder is made and no setting of JAX is touched."""
    monkeypatch.setenv("JITNEY_CACHE", word)
    monkeypatch.setenv("JITNEY_CACHE_DIR", str(tmp_path / "new"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)  # as in a process where no test has turned the cache on yet
    switch = _cache._Switch()
    try:
        switch.settle()
        assert switch.decision is not None
        assert not switch.decision.facts.enabled
        assert not (tmp_path / "new").exists()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_directory_set_in_jax_is_left_alone(tmp_path):
    """By environment variable: nothing of JAX's changes, and jitney's folder is not made."""
    code = """
        before = jax_says()
        out["warned"] = warned()
        out["kept"] = [before == jax_says(), Path(base).exists(), compiled(2.0)]
        out["facts"] = vars(_cache.facts())
        out["asked"] = warned(lambda: _cache.configure(cache_dir=base)) + warned()
    """
    out = process(code, tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs"))
    assert out["kept"] == [True, False, "past"]  # theirs keeps what took a second or more, as JAX has it
    assert out["facts"]["directory"] == str(tmp_path / "theirs")
    assert "set by the user" in out["facts"]["reason"]
    assert out["warned"] == []
    assert len(out["asked"]) == 1
    assert "comes before" in out["asked"][0]


def test_a_directory_set_in_jax_afterwards_takes_over(tmp_path):
    """jitney takes back its own settings, and the user's take effect without a reset of theirs."""
    code = """
        _cache.ensure()
        compiled(2.0)
        theirs = str(Path(base) / "theirs")
        jax.config.update("jax_compilation_cache_dir", theirs)
        _cache.ensure()
        out["jax"] = jax_says()[1:3]
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        out["theirs"] = [compiled(2.0), bool(list(Path(theirs).glob("*-cache"))), str(_cache.facts().directory) == theirs]
        jax.config.update("jax_compilation_cache_dir", None)
        _cache.ensure()
        out["unset"] = [_cache.facts().enabled, jax_says()[0]]
    """
    out = process(code, tmp_path)
    assert out["jax"] == UNTOUCHED[1:3]
    assert out["theirs"] == ["kept", True, True]
    assert out["unset"] == [False, None]


def test_other_settings_made_in_jax_hold(tmp_path):
    """A least compile time and a size of the user's own, by either way of setting them."""
    code = """
        jax.config.update("jax_compilation_cache_max_size", 12345678)
        _cache.ensure()
        out["on"] = [jax_says()[1:3], _cache.facts().size_limit, compiled(2.0)]
        _cache.configure(cache=False)
        out["off"] = jax_says()[1:3]
    """
    out = process(code, tmp_path, JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="1")
    assert out["on"] == [[1.0, 12345678], 12345678, "past"]
    assert out["off"] == [1.0, 12345678]


def test_jax_without_a_cache_stays_without(tmp_path):
    """JAX_ENABLE_COMPILATION_CACHE is the user's; `disabled` gives it back as it was."""
    code = """
        _cache.ensure()
        with _cache.disabled():
            pass
        out["state"] = [_cache.facts().enabled, compiled(2.0), jax_says(), Path(base).exists()]
        jax.config.update("jax_enable_compilation_cache", True)
        _cache.ensure()
        jax.config.update("jax_enable_compilation_cache", False)
        _cache.ensure()
        out["later"] = [compiled(3.0), _cache.facts().reason]
    """
    out = process(code, tmp_path / "new", JAX_ENABLE_COMPILATION_CACHE="0")
    assert out["state"] == [False, "past", [None, 1.0, -1, False], False]
    assert out["later"] == ["past", "`jax_enable_compilation_cache` is off"]


def test_the_defaults_of_jax_are_what_we_take_them_for():
    """A setting that differs from these counts as the user's."""
    code = "out['jax'] = jax_says()"
    assert process(code)["jax"] == UNTOUCHED


def test_the_least_recently_used_programs_go_first(tmp_path):
    """Where the limit is made smaller, and as the folder grows past it; what was used last is found again."""
    code = """
        _cache._LOOK_AFTER = 2
        _cache.configure(cache_size="unlimited")
        _cache.ensure()
        folder = _cache.facts().directory

        def aged(factors):  # the first was used an hour ago, the next a minute later
            for minutes, factor in enumerate(factors):
                known = set(folder.glob("*-cache"))
                compiled(factor)
                (entry,) = set(folder.glob("*-cache")) - known
                os.utime(entry, times=(entry.stat().st_mtime - 3600 + 60 * minutes,) * 2)
            return entry.stat().st_size

        size = aged([2.0, 3.0, 4.0, 5.0])
        _cache.configure(cache_size=int(2.5 * size))
        out["smaller"] = [len(list(folder.glob("*-cache"))), compiled(5.0), compiled(4.0), compiled(2.0)]
        compiled(6.0), _cache.ensure(), _cache.ensure()
        out["grown"] = [len(list(folder.glob("*-cache"))), compiled(6.0)]
        out["jax"] = jax_says()[2]
    """
    out = process(code, tmp_path)
    assert out["smaller"] == [2, "hit", "hit", "kept"]
    assert out["grown"] == [2, "hit"]
    assert out["jax"] == -1  # with a limit, JAX would read the whole folder at each write


def test_a_limit_given_to_jax_is_kept_by_jax(tmp_path):
    """Also over entries of a time without limit, which have no time stamp and fail its writes in jax 0.10."""
    code = """
        _cache.ensure()
        compiled(2.0)
        entry = next(_cache.facts().directory.glob("*-cache"))
        jax.config.update("jax_compilation_cache_max_size", int(3.5 * entry.stat().st_size))
        _cache.ensure()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out["kept"] = [compiled(float(i)) for i in (3, 4, 3, 5, 6)]
        out["left"] = len(list(_cache.facts().directory.glob("*-cache")))
        out["oldest"] = [entry.exists(), compiled(3.0), compiled(4.0)]
    """
    out = process(code, tmp_path)
    assert out["kept"] == ["kept", "kept", "hit", "kept", "kept"]
    assert out["left"] == 3
    assert out["oldest"] == [False, "hit", "kept"]


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
    "make", [a_file, below_a_file, open_to_others, a_link_to_nothing, a_link_to_an_open_folder, a_link_to_itself, a_file_inside]
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
    """Whoever can write it could put another folder in the place of the cache; /tmp has a sticky bit."""
    above = tmp_path / "above"
    (above / "mine").mkdir(parents=True)
    above.chmod(mode)
    refusals = [_folder.prepare(above / "mine" / "cache"), _folder.prepare(above / "new")]
    (tmp_path / "link").symlink_to(above / "mine")
    refusals.append(_folder.prepare(tmp_path / "link" / "cache"))
    assert [refusal is None for refusal in refusals] == [taken] * 3
    assert all(refusal is None or f"lies below {above}, which other users can write" in refusal.what for refusal in refusals)


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


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
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


ZSTD = '''
"""Stands in for the package: frames of zstd as far as their header, with and without a checksum at the end."""
import zlib

class ZstdError(Exception): ...

class ZstdCompressor:
    def __init__(self, *, write_checksum=False):
        self.flag = 4 * write_checksum
    def compress(self, raw):
        packer = zlib.compressobj(wbits=-15)
        packed = packer.compress(raw) + packer.flush()
        return b"\\x28\\xb5\\x2f\\xfd" + bytes([0x60 | self.flag]) + packed + (zlib.crc32(raw).to_bytes(4) if self.flag else b"")

class ZstdDecompressor:
    def decompress(self, frame):
        if frame[:4] != b"\\x28\\xb5\\x2f\\xfd":
            raise ZstdError("no frame")
        unpacker = zlib.decompressobj(wbits=-15)
        try:
            raw = unpacker.decompress(frame[5:])
        except zlib.error as error:
            raise ZstdError("damaged") from error
        if not unpacker.eof or frame[4] & 4 and unpacker.unused_data[:4] != zlib.crc32(raw).to_bytes(4):
            raise ZstdError("damaged")
        return raw
'''


def codec(tmp_path, name):
    """The environment of a process whose JAX compresses so: Python 3.14 has zstd, others have it where `zstandard` is installed."""
    if name == "zlib" and _entries.NAME != "xla":
        pytest.skip("zstd is here")
    if name == "zstd" and _entries.NAME == "xla":
        (tmp_path / "zstandard").mkdir()
        (tmp_path / "zstandard" / "__init__.py").write_text(ZSTD)
    return {"PYTHONPATH": f"{tmp_path / 'zstandard' / '..'}{os.pathsep}{SRC}"}


@pytest.mark.parametrize("name", ["zlib", "zstd"])
def test_a_flipped_bit_is_never_run(tmp_path, name):
    """The program is compiled anew, and the entry is replaced; without a checksum XLA runs what the bit has made of it, or dies."""
    code = """
        import random
        _cache.ensure()
        compiled(2.0)
        (entry,) = _cache.facts().directory.glob("*-cache")
        size, out["healed"], rng = entry.stat().st_size, 0, random.Random(0)
        warnings.simplefilter("ignore")
        for _ in range(15):
            bit, whole = rng.randrange(8 * size), bytearray(entry.read_bytes())
            whole[bit // 8] ^= 1 << bit % 8
            entry.write_bytes(whole)
            assert jax.jit(lambda x: x * 2.0 + 1)(jnp.arange(3.0)).tolist() == [1.0, 3.0, 5.0]
            compiled(2.0)
            out["healed"] += compiled(2.0) == "hit"
        out["folder"] = entry.parent.name
    """
    out = process(code, tmp_path / "cache", **codec(tmp_path, name))
    assert out["folder"] == ("xla" if name == "zlib" else "xla-zstd")
    assert out["healed"] == 15


@pytest.mark.parametrize("name", ["zlib", "zstd"])
def test_what_is_empty_cut_or_unfinished_heals(tmp_path, name):
    """Empty ones are gone before JAX looks; at a cut one it warns once. Of zstd, what has no checksum yet is not trusted either."""
    code = """
        said = []
        warnings.showwarning = lambda message, *_, **__: said.append(str(message))
        _cache.ensure()
        out["left"] = [p.name for p in _cache.facts().directory.iterdir()]
        out["how"] = [sorted(map(compiled, (2.0, 3.0, 4.0))) for _ in range(3)]
        out["said"] = len(said)
    """
    environment = codec(tmp_path, name)
    assert process(code, tmp_path / "cache", **environment)["how"][0] == ["kept"] * 3
    empty, cut, raw = (tmp_path / "cache").glob("*/*-cache")
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:-100])
    if name == "zstd":
        raw.write_bytes(raw.read_bytes()[:4] + b"\x60" + raw.read_bytes()[5:])
    (empty.parent / "jit_f-0-cache-1-sealing").write_bytes(b"of a process that was killed")
    out = process(code, tmp_path / "cache", **environment)
    assert set(out["left"]) == ({cut.name, raw.name} if name == "zlib" else {cut.name})
    assert out["said"] == 1
    assert out["how"][1:] == [["hit", "hit", "kept"], ["hit"] * 3]


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


@POSIX
def test_a_folder_that_takes_no_more_is_one_warning_and_a_run_without_it(tmp_path):
    """Writes fail, as on a full disk or past a quota; programs still run, JAX's settings are untouched."""
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


def test_an_unknown_word_in_the_environment_is_a_warning(tmp_path):
    """The cache stays on."""
    out = process("out['state'] = [warned(), warned(), _cache.facts().enabled]", tmp_path, JITNEY_CACHE="maybe")
    first, again, enabled = out["state"]
    assert "JITNEY_CACHE='maybe'" in first[0]
    assert again == []
    assert enabled


def test_a_limit_given_to_jax_needs_filelock(tmp_path):
    """Without it JAX would warn at each compile and keep nothing; jitney's own limit does not need it."""
    code = """
        import sys
        sys.modules["filelock"] = None
        out["ours"] = [warned(), _cache.facts().size_limit, compiled(2.0)]
        jax.config.update("jax_compilation_cache_max_size", 12345678)
        out["theirs"] = [warned(), _cache.facts().enabled]
    """
    out = process(code, tmp_path)
    assert out["ours"] == [[], 2 * 2**30, "kept"]
    assert "filelock" in out["theirs"][0][0]
    assert not out["theirs"][1]


@pytest.mark.parametrize(
    ("text", "size"),
    [(1, 1), ("512", 512), ("1kB", 1000), ("1 KiB", 1024), ("1.5MiB", 1572864), ("2GiB", 2**31), ("3 tb", 3 * 10**12), ("unlimited", -1)],
)
def test_sizes_are_bytes_or_text(text, size):
    """Powers of 1000 and of 1024 keep their names apart."""
    assert _cache._read_size(text) == size


@pytest.mark.parametrize(
    "options",
    [
        {"cache_size": 0},
        {"cache_size": -1},
        {"cache_size": True},
        {"cache_size": 1.5},
        {"cache_size": "2 parsecs"},
        {"cache_size": ""},
        {"cache_dir": ""},
        {"cache_dir": 3},
        {"cache_dir": "gs://bucket/cache"},
        {"cache": "program"},
        {"cache": 1},
    ],
)
def test_malformed_options_are_refused(options):
    """With the option named, and nothing changed."""
    before = _cache._SWITCH.request
    with pytest.raises(OptionError, match=f"{next(iter(options))}=.*is not understood"):
        _cache.configure(**options)
    assert _cache._SWITCH.request is before
