"""The persistent compilation cache: on by default, never in the way of a setting made in JAX."""

import os
from pathlib import Path

import jax
import pytest

from jitney._errors import OptionError
from jitney._jax.compile_cache import cache as _cache
from jitney._jax.compile_cache import entries as _entries
from tests.jax.compile_cache._processes import UNTOUCHED, process


def test_a_second_process_compiles_nothing_again(tmp_path):
    """The first process keeps its programs, also after a compile without cache; the second reads
    them.
    """
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


@pytest.mark.rest
def test_the_default_folder_is_the_users_cache_folder(tmp_path):
    """As `platformdirs` has it, which on Linux follows XDG_CACHE_HOME."""
    code = """
        import platformdirs
        out["home"] = [platformdirs.user_cache_dir("jitney"), warned(), _cache.facts().directory]
    """
    home, warnings, directory = process(code, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path))[
        "home"
    ]
    assert Path(directory).is_relative_to(home)
    assert Path(home).is_relative_to(tmp_path)
    assert not warnings


@pytest.mark.rest
def test_a_program_can_be_compiled_past_the_cache(tmp_path):
    """Neither read nor written inside `disabled`, nested, after an error, and across threads; as
    before outside.
    """
    code = """
        _cache.ensure()
        compiled(2.0)
        try:
            with _cache.pause_cache():
                with _cache.pause_cache():
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


@pytest.mark.rest
def test_many_threads_turn_it_on_once(tmp_path):
    """No thread sees half a setting."""
    code = """
        start = threading.Barrier(8)
        def work(i):
            start.wait()
            _cache.ensure()
            with _cache.pause_cache() if i % 2 else threading.Lock():
                jax.jit(lambda x: x * float(i))(1.0)
            _cache.ensure()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads], [t.join() for t in threads]
        out["state"] = [_cache.facts().enabled, compiled(99.0), compiled(99.0)]
    """
    assert process(code, tmp_path)["state"] == [True, "kept", "hit"]


@pytest.mark.rest
def test_it_is_turned_off_and_changed_while_the_process_runs(tmp_path):
    """`configure` applies from the next compile on, and gives JAX's settings back when it turns the
    cache off.
    """
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
    # as in a process where no test has turned the cache on yet
    jax.config.update("jax_compilation_cache_dir", None)
    switch = _cache._CacheState()
    try:
        switch.settle()
        assert switch.decision is not None
        assert not switch.decision.facts.enabled
        assert not (tmp_path / "new").exists()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.rest
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
    # theirs keeps what took a second or more, as JAX has it
    assert out["kept"] == [True, False, "past"]
    assert out["facts"]["directory"] == str(tmp_path / "theirs")
    assert "set by the user" in out["facts"]["reason"]
    assert out["warned"] == []
    assert len(out["asked"]) == 1
    assert "comes before" in out["asked"][0]


@pytest.mark.rest
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


@pytest.mark.rest
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


@pytest.mark.rest
def test_jax_without_a_cache_stays_without(tmp_path):
    """JAX_ENABLE_COMPILATION_CACHE is the user's; `disabled` gives it back as it was."""
    code = """
        _cache.ensure()
        with _cache.pause_cache():
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


@pytest.mark.rest
def test_the_defaults_of_jax_are_what_we_take_them_for():
    """A setting that differs from these counts as the user's."""
    code = "out['jax'] = jax_says()"
    assert process(code)["jax"] == UNTOUCHED


@pytest.mark.rest
def test_the_least_recently_used_programs_go_first(tmp_path):
    """Where the limit is made smaller, and as the folder grows past it; what was used last is found
    again.
    """
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


@pytest.mark.rest
def test_a_limit_given_to_jax_is_kept_by_jax(tmp_path):
    """Also over entries of a time without limit, which have no time stamp and fail its writes in
    jax 0.10.
    """
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


@pytest.mark.rest
def test_an_unknown_word_in_the_environment_is_a_warning(tmp_path):
    """The cache stays on."""
    out = process(
        "out['state'] = [warned(), warned(), _cache.facts().enabled]",
        tmp_path,
        JITNEY_CACHE="maybe",
    )
    first, again, enabled = out["state"]
    assert "JITNEY_CACHE='maybe'" in first[0]
    assert again == []
    assert enabled


@pytest.mark.rest
def test_a_limit_given_to_jax_needs_filelock(tmp_path):
    """Without it JAX would warn at each compile and keep nothing; jitney's own limit does not need
    it.
    """
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
    [
        (1, 1),
        ("512", 512),
        ("1kB", 1000),
        ("1 KiB", 1024),
        ("1.5MiB", 1572864),
        ("2GiB", 2**31),
        ("3 tb", 3 * 10**12),
        ("unlimited", -1),
    ],
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
