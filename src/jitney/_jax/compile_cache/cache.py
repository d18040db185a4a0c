"""Switch of JAX's persistent compilation cache, in a private folder, unless the user has configured
it.

It is not a part of the pipeline, and knows nothing of plans. `ensure` runs before a program is
compiled for the first time, never on a warm call. JAX has one such cache per process, so this is a
switch for everything that JAX compiles from then on, plain `jax.jit` included. A setting that the
user has changed in JAX is left alone: if they name a directory of their own, before or after,
jitney restores what it had set.

Behaviour of JAX, read in its source and tried with 0.10.2 and 0.12.0.1:
- Compiling before the directory is set does not lock the cache out. A later change of directory,
  size limit or on-off flag has no effect until `reset_cache()`.
- No public way excludes one compile, and the flag is not thread-local: `pause_cache` switches the
  whole process.
- Its size limit reads the whole folder at each write, and needs the package `filelock`. So jitney
  has its own limit (`folder.py`). Both count entries only; the autotuning files of GPUs are not
  counted.
- A failed read or write is a warning, not an error. An entry truncated by a kill costs one warning
  (`entries.py` deletes it then), and so does one that another process is writing at that moment:
  without a limit of its own JAX takes no lock.
- Nothing records whether a setting was changed: a value equal to JAX's default counts as unchanged,
  unless its environment variable is set.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import jax
import platformdirs
from jax.experimental.compilation_cache import compilation_cache

from ..._errors import CacheWarning, OptionError, format_error
from ..._extent import read_bytes
from ..._public import public_in
from .entries import NAME, FolderObserver
from .folder import ANOTHER, Refusal, limited_by_jax, prepare, printable_path, trim

_FOLDER: Final = "jax_compilation_cache_dir"
_FLAG: Final = "jax_enable_compilation_cache"
_SECONDS: Final = "jax_persistent_cache_min_compile_time_secs"
_BYTES: Final = "jax_compilation_cache_max_size"
# JAX's value for no limit
_UNLIMITED: Final = -1
# the same in 0.10.2 and 0.12.0.1
_JAX_DEFAULTS: Final[dict[str, Any]] = {_SECONDS: 1.0, _BYTES: _UNLIMITED}

_DEFAULT_SIZE: Final = 2 * 2**30
# number of programs between two checks of the size limit
_LOOK_AFTER: Final = 256
_WITHOUT: Final = (
    "The cache is in a folder that only its user can write; until then programs are compiled"
    " without it."
)


@public_in("jitney.types")
@dataclass(frozen=True)
class CacheFacts:
    """State of the persistent cache, for reports."""

    enabled: bool
    directory: Path | None
    # in bytes; `None` is not a limit
    size_limit: int | None
    # who turned it on, or why it is off
    reason: str


@dataclass(frozen=True)
class _GivenSettings:
    """Settings that the caller of `configure` gave; `None` for those not given."""

    cache: bool | None = None
    base: Path | None = None
    size: int | None = None


@dataclass(frozen=True)
class _Setting:
    """A JAX setting that jitney changed: its value before, and jitney's value."""

    before: Any
    ours: object


@dataclass(frozen=True)
class _CacheDecision:
    facts: CacheFacts
    ours: bool = False
    warning: str | None = None


class _CacheState:
    """State of the functions of this module. JAX has one cache per process, so there is one
    instance.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.request = _GivenSettings()
        self.made: dict[str, _Setting] = {}
        # True after the user changed the directory that jitney had set
        self.released = False
        self.decision: _CacheDecision | None = None
        self.watch = FolderObserver()
        self.prepared: tuple[tuple[Path, int], Refusal | None] | None = None
        self.warned: set[str] = set()
        # number of programs since the folder was last compared with its limit
        self.ensured = 0
        self.pauses = 0
        self.flag_before_pause = True

    def settle(self) -> None:
        """Bring JAX's settings to what they should be now; change nothing if they are."""
        decision = self._decide()
        if decision == self.decision:
            return

        # Restore first, so that `_apply` stores the user's values, not jitney's, as those before.
        changed = self._withdraw()
        self.ensured = 0
        if decision.ours:
            self._apply(decision.facts)
            changed = True
        self.decision = decision
        self.watch.follow(decision.facts.directory if decision.ours else None)
        if changed:
            compilation_cache.reset_cache()
        if decision.warning is not None:
            self._warn_once(decision.warning)

    def keep_limit(self) -> None:
        """Compare jitney's folder with its size limit: at first, after a change, and after every
        `_LOOK_AFTER` programs. A limit that the user set is left to JAX.
        """
        now, self.ensured = self.ensured == 0, (self.ensured + 1) % _LOOK_AFTER
        ours = self.decision.facts if self.decision is not None and self.decision.ours else None
        if (
            not now
            or ours is None
            or ours.directory is None
            or ours.size_limit is None
            or self._is_users(_BYTES)
        ):
            return
        try:
            trim(ours.directory, ours.size_limit)
        except OSError as error:
            what = f"{ours.directory} cannot be made smaller ({error.strerror or error})"
            self._warn_once(
                format_error(
                    "the compilation cache",
                    what,
                    "Past its limit, entries used least recently are deleted.",
                    ANOTHER,
                )
            )

    def _warn_once(self, text: str) -> None:
        if text not in self.warned:
            self.warned.add(text)
            warnings.warn(text, CacheWarning, stacklevel=4)

    def _decide(self) -> _CacheDecision:
        folder = _jax(_FOLDER)
        if self.made and folder != self.made[_FOLDER].ours:
            self.released = True

        # The user's directory comes first, then the user's flag, then `configure` and JITNEY_CACHE.
        if self.released or (not self.made and folder is not None):
            return self._users_own(folder)
        if not self._flag():
            return _off(f"`{_FLAG}` is off")
        cache, warning = _cache_choice(self.request)
        if not cache:
            return _off("turned off by `jitney.configure` or JITNEY_CACHE", warning)
        return self._decide_own_cache(warning)

    def _users_own(self, folder: str | None) -> _CacheDecision:
        if not folder:
            return _off(f"`{_FOLDER}` was unset by the user")
        warning = (
            None if self.request.base is None else _conflict_warning(self.request.base, folder)
        )
        enabled, size = self._flag(), _limit(_jax(_BYTES))
        return _CacheDecision(
            CacheFacts(enabled, Path(folder), size, f"`{_FOLDER}` is set by the user"),
            warning=warning,
        )

    def _decide_own_cache(self, warning: str | None) -> _CacheDecision:
        base = self.request.base or _default_base()
        users = self._is_users(_BYTES)
        size = _jax(_BYTES) if users else self.request.size or _DEFAULT_SIZE
        refusal = self._prepare(base, size if users else _UNLIMITED)
        if refusal is not None:
            text = format_error(
                "the compilation cache",
                f"{printable_path(base)} {refusal.what}",
                _WITHOUT,
                refusal.fix,
            )
            return _off(f"{printable_path(base)} {refusal.what}", text)
        reason = (
            "on by default"
            if base == _standard_base()
            else "on, in a directory that the user named"
        )
        cache = CacheFacts(
            enabled=True, directory=base / NAME, size_limit=_limit(size), reason=reason
        )
        return _CacheDecision(cache, ours=True, warning=warning)

    def _prepare(self, base: Path, jax_size: int) -> Refusal | None:
        """Check a directory once, and again if it has vanished."""
        known = self.prepared
        if (
            known is None
            or known[0] != (base, jax_size)
            or not (known[1] or (base / NAME).is_dir())
        ):
            self.prepared = known = (
                (base, jax_size),
                prepare(base) or (None if jax_size == _UNLIMITED else limited_by_jax(base)),
            )
        return known[1]

    def _apply(self, facts: CacheFacts) -> None:
        for name, ours in ((_FOLDER, str(facts.directory)), (_SECONDS, 0.0)):
            if not self._is_users(name):
                self.made[name] = _Setting(_jax(name), ours)
                _set(name, to=ours)

    def _withdraw(self) -> bool:
        """Restore each JAX setting that still has jitney's value."""
        changed = bool(self.made)
        for name, setting in self.made.items():
            if _jax(name) == setting.ours:
                _set(name, to=setting.before)
        self.made = {}
        return changed

    def _is_users(self, name: str) -> bool:
        if name in self.made and _jax(name) == self.made[name].ours:
            return False
        return name in _JAX_DEFAULTS and (
            _jax(name) != _JAX_DEFAULTS[name] or name.upper() in os.environ
        )

    def _flag(self) -> bool:
        return self.flag_before_pause if self.pauses else _jax(_FLAG)

    def pause(self) -> None:
        if self.pauses == 0:
            self.flag_before_pause = _jax(_FLAG)
            _set(_FLAG, to=False)
            # JAX reads the flag once and memoises it.
            compilation_cache.reset_cache()
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1
        if self.pauses == 0:
            # A flag that was turned on inside of the block stays as it is.
            if not _jax(_FLAG):
                _set(_FLAG, to=self.flag_before_pause)
            compilation_cache.reset_cache()


_SWITCH: Final = _CacheState()


def ensure() -> None:
    """Turn the cache on unless something forbids it. Cheap and idempotent; called before each first
    compile.
    """
    with _SWITCH.lock:
        _SWITCH.settle()
        _SWITCH.keep_limit()


def facts() -> CacheFacts:
    """Return the state of the cache. It is off before the first `ensure`."""
    with _SWITCH.lock:
        return (_SWITCH.decision or _off("nothing compiled yet")).facts


def folder(name: str) -> Path | None:
    """Return a folder of jitney's own next to the compiled programs; None if the cache is off or in
    a directory of the user's.
    """
    with _SWITCH.lock:
        ensure()
        decision = _SWITCH.decision
    if decision is None or not decision.ours or decision.facts.directory is None:
        return None
    return decision.facts.directory.parent / name


def own() -> Path | None:
    """Return jitney's own folder of compiled programs, for entries of jitney among JAX's.

    None if the cache is off or in a directory of the user's, or if JAX enforces a size limit: then
    the folder must hold only entries that JAX wrote.
    """
    with _SWITCH.lock:
        ensure()
        decision = _SWITCH.decision
    if decision is None or not decision.ours or _jax(_BYTES) != _UNLIMITED:
        return None
    return decision.facts.directory


@contextmanager
def pause_cache() -> Generator[None]:
    """Compile without reading or writing the persistent cache.

    JAX has one flag for the process, so programs that other threads compile meanwhile are not
    cached either, which is never wrong. Blocks may nest and overlap; the last one to end restores
    the flag.
    """
    with _SWITCH.lock:
        _SWITCH.pause()
    try:
        yield
    finally:
        with _SWITCH.lock:
            _SWITCH.resume()


def configure(
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    cache: bool | None = None,
) -> None:
    """Configure the persistent cache, as a part of `jitney.configure`.

    Raises:
        OptionError: A value is malformed.
    """
    given = _GivenSettings(
        _read_flag("cache", cache), _read_base(cache_dir), _read_size(cache_size)
    )

    # Options that are not given keep their earlier values.
    with _SWITCH.lock:
        was = _SWITCH.request
        _SWITCH.request = replace(
            was, **{name: value for name, value in vars(given).items() if value is not None}
        )
        # `cache=True` turns the cache on again after the user has unset its directory.
        if given.cache and _jax(_FOLDER) is None:
            _SWITCH.released = False
        # Before the first `ensure` the request is only stored.
        if _SWITCH.decision is not None:
            _SWITCH.settle()
            _SWITCH.keep_limit()


def _jax(name: str) -> Any:
    return getattr(jax.config, name)


def _set(name: str, *, to: Any) -> None:
    jax.config.update(name, to)


def _off(reason: str, warning: str | None = None) -> _CacheDecision:
    return _CacheDecision(
        CacheFacts(enabled=False, directory=None, size_limit=None, reason=reason), warning=warning
    )


def _conflict_warning(base: Path, folder: str) -> str:
    what = f"cache_dir={str(base)!r} is not used, `{_FOLDER}` is {folder!r}"
    rule = "A setting made in JAX comes before jitney's."
    return format_error(
        "jitney.configure()", what, rule, f"give one of the two, `cache_dir` or `{_FOLDER}`."
    )


def _limit(size: int) -> int | None:
    return None if size == _UNLIMITED else size


def _standard_base() -> Path:
    return Path(platformdirs.user_cache_dir("jitney"))


def _default_base() -> Path:
    named = os.environ.get("JITNEY_CACHE_DIR", "")
    if "://" in named:
        # a URL is not an absolute path, so `prepare` refuses it
        return Path(named)
    return _path(named) if named else _standard_base()


def _path(text: str) -> Path:
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - `Path.expanduser` raises where there is no home


def _cache_choice(request: _GivenSettings) -> tuple[bool, str | None]:
    """Return whether a cache is wanted, and a warning if JITNEY_CACHE has an unknown value."""
    text = os.environ.get("JITNEY_CACHE", "").strip().lower()
    named = {
        "": None,
        "on": True,
        "1": True,
        "true": True,
        "off": False,
        "0": False,
        "false": False,
    }
    if request.cache is not None:
        return request.cache, None
    if text in named:
        return named[text] is not False, None
    what, rule = f"JITNEY_CACHE={text!r} is not known", "It is `on` or `off`; the cache stays on."
    return True, format_error(
        "the compilation cache", what, rule, "set JITNEY_CACHE=off or unset it."
    )


def _read_flag(name: str, given: object) -> bool | None:
    if given is None or isinstance(given, bool):
        return given
    raise OptionError(_option_message(name, given, "It is True or False."), code="J206")


def _read_base(cache_dir: str | os.PathLike[str] | None) -> Path | None:
    if cache_dir is None:
        return None
    try:
        text = os.fsdecode(cache_dir)
    except TypeError:
        text = ""
    if not text or "://" in text:
        rule = f"It is a local directory; for a remote one set JAX's own `{_FOLDER}`."
        raise OptionError(_option_message("cache_dir", cache_dir, rule), code="J206")
    return _path(text)


def _read_size(cache_size: int | str | None) -> int | None:
    if cache_size is None:
        return None
    size = _bytes(cache_size)
    if size is None or (size != _UNLIMITED and size <= 0):
        rule = (
            'It is a positive number of bytes, text like "2GiB", or "unlimited"; for no cache give'
            " cache=False."
        )
        raise OptionError(_option_message("cache_size", cache_size, rule), code="J206")
    return size


def _bytes(size: object) -> int | None:
    if isinstance(size, int) and not isinstance(size, bool):
        return None if size == _UNLIMITED else size
    if not isinstance(size, str):
        return None
    if size.strip().lower() == "unlimited":
        return _UNLIMITED
    count = read_bytes(size)
    return None if count is None else int(count)


def _option_message(name: str, value: object, rule: str) -> str:
    return format_error(
        "jitney.configure()",
        f"{name}={value!r} is not understood",
        rule,
        f"correct or remove `{name}`.",
    )
