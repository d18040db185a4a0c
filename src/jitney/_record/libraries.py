"""Detection of changes in installed packages: in the files whose code ran, and in the values of the
names that this code uses.

A reinstall changes the size or time of a file; a monkeypatch replaces an attribute of a module or a
class. Both are compared for the code that ran only: some thousand names, in a few milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import attrgetter

from .._owners import STARTED, owner
from .instructions import Codes
from .monkeypatch import Fingerprinter
from .origin import CORE
from .unsure import NotDeterministic


@dataclass(frozen=True)
class Names:
    """Names of an installed module, or of a class in it, and a digest of their values.

    Args:
        module: The module.
        within: Dotted name of the class; empty for names of the module itself.
        is_core: Whether the module is of JAX, of a package like it, or of the standard library,
            whose numbers and texts may be state.
        functions: Names of functions without `__wrapped__`.
        others: Names of other values.
        later: Descriptions of the names that may not be imported yet.
        digest: Digest of the values of `functions` and `others`.
    """

    module: str
    within: str
    is_core: bool
    functions: Sequence[str]
    others: Sequence[str]
    later: Mapping[str, str]
    digest: str


@dataclass(frozen=True)
class Libraries:
    """Files and names of installed packages that a trace used.

    Args:
        files: Size and modification time of each file.
        names: The names, by module and class.
    """

    files: Mapping[str, tuple[int, int]]
    names: Sequence[Names]

    @classmethod
    def of(cls, ran: Codes) -> Libraries:
        """Collect the files and names of code that ran, each with its module.

        Raises:
            NotDeterministic: A file was written after this process began.
        """
        paths = [code.co_filename for code, _ in ran]
        ran_files = [path for path in paths if not path.startswith("<")]
        files = {name: _stat(name) for name in dict.fromkeys([*ran_files, *_own_files()])}
        for name, (_, changed) in files.items():
            # A file that is newer than the process may not be the one that was imported.
            if changed > STARTED:
                raise NotDeterministic(f"{name} was written since this process began")
        used: dict[str, set[str]] = {}
        for code, module in ran:
            outermost = code.co_qualname.partition(".<locals>")[0]
            used.setdefault(module, set()).add(outermost)
            _collect_names(code, module, used)

        seen = _Seen()
        spaces = _in_spaces(used)
        return cls(files, [seen.record(*place, names) for place, names in spaces.items()])

    def first_change(self) -> str | None:
        """Return the first change that is found, in words; None if there is none."""
        for name, before in self.files.items():
            if _stat(name) != tuple(before):
                return f"{name} has changed"
            if before[1] > STARTED:
                return f"{name} was written since this process began"
        seen = _Seen()
        for names in self.names:
            if names.module in sys.modules and not seen.are(names):
                return f"a name of {names.module} stands for something else"
        return None


def _collect_names(
    code: types.CodeType,
    module: str,
    used: dict[str, set[str]],
) -> None:
    """Add the globals that code reads to `used`, and the names that it may read of modules among
    them.
    """

    # Transitive: `np.linalg.norm` reads `linalg` in `numpy` and `norm` in `numpy.linalg`.
    waiting, seen = [module], {module}
    while waiting:
        at = waiting.pop()
        space = vars(sys.modules[at]) if at in sys.modules else {}
        for name in code.co_names:
            if name in space:
                used.setdefault(at, set()).add(name)
                value = space[name]
                inner = (
                    getattr(value, "__name__", "") if isinstance(value, types.ModuleType) else ""
                )
                if inner and inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)


def _own_files() -> list[str]:
    """Return all imported files of jitney, which plan, prove and write the program. A process with
    the same files imports the same ones for the same program.
    """
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == _JITNEY]
    files = [getattr(module, "__file__", None) for module in modules]
    return sorted(file for file in files if isinstance(file, str))


_JITNEY = __name__.partition(".")[0]


def _in_spaces(used: Mapping[str, set[str]]) -> dict[tuple[str, str], set[str]]:
    """Group names by the module and class that hold them."""
    spaces: dict[tuple[str, str], set[str]] = {}
    for module, names in used.items():
        if module not in sys.modules:
            continue
        for name in names:
            within, _, last = name.rpartition(".")
            spaces.setdefault((module, within), set()).add(last)
    return spaces


def _stat(name: str) -> tuple[int, int]:
    try:
        status = os.stat(name)  # noqa: PTH116 - hundreds of them need no paths
    except OSError:
        return (-1, -1)
    return status.st_size, status.st_mtime_ns


class _Seen:
    """A look at the namespaces of modules and classes, memoised: used up before any other code
    runs.
    """

    def __init__(self) -> None:
        self._look = Fingerprinter()
        self._spaces: dict[tuple[str, str], Mapping[str, object]] = {}

    def record(self, module: str, within: str, names: set[str]) -> Names:
        """Build the record of some names of a module or class."""
        space, is_core = self._space(module, within), _is_core(module)
        values = {name: space.get(name) for name in sorted(names)}

        # Submodules, and names that jitney imports lazily, may be missing in the process that
        # compares.
        later = {
            name: value
            for name, value in values.items()
            if isinstance(value, types.ModuleType) or _is_lazy(module)
        }
        functions = [
            name for name, value in values.items() if name not in later and _are_functions([value])
        ]
        others = [name for name in values if name not in later and name not in functions]
        described = self._look.fingerprint_each(later.values(), is_core=is_core)
        descriptions = dict(zip(later, described, strict=True))
        noted = Names(module, within, is_core, functions, others, descriptions, "")
        return replace(noted, digest=self._digest(noted, space))

    def are(self, names: Names) -> bool:
        """Return whether all names still have the values of the record."""
        space = self._space(names.module, names.within)
        here = [name for name in names.later if space.get(name) is not None]
        later = self._look.fingerprint_each(map(space.get, here), is_core=names.is_core)
        before = [names.later[name] for name in here]
        return later == before and self._digest(names, space) == names.digest

    def _digest(self, names: Names, space: Mapping[str, object]) -> str:
        """Return the digest of the values, without those that may be imported later."""
        functions = [*map(space.get, names.functions)]
        if not _are_functions(functions):
            return "no functions"
        others = self._look.fingerprint_each(map(space.get, names.others), is_core=names.is_core)
        text = "\n".join([_places(functions), *others])
        content = text.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def _space(self, module: str, within: str) -> Mapping[str, object]:
        """Return the namespace of a module, or of a class by its dotted name, without calling
        anything.
        """
        space = self._spaces.get((module, within))
        if space is None:
            outer, _, last = within.rpartition(".")
            value = self._space(module, outer).get(last) if last else sys.modules[module]
            space = self._spaces[module, within] = (
                vars(value) if isinstance(value, (type, types.ModuleType)) else {}
            )
        return space


_CODE: Callable[[object], types.CodeType] = attrgetter("__code__")
_FILE: Callable[[types.CodeType], str] = attrgetter("co_filename")
_LINE: Callable[[types.CodeType], int] = attrgetter("co_firstlineno")
_CALLED: Callable[[types.CodeType], str] = attrgetter("co_name")


def _places(functions: Sequence[object]) -> str:
    """Return file, line and name of each function as text; the file only once if all share it."""
    codes = [*map(_CODE, functions)]
    files = [*map(_FILE, codes)]
    if len({*files}) == 1:
        files = files[:1]
    lines = [*map(_LINE, codes)]
    names = [*map(_CALLED, codes)]
    return repr((files, lines, names))


def _are_functions(values: Sequence[object]) -> bool:
    """Return whether all values are functions without `__wrapped__`, which their position in a file
    identifies. No loop in Python, since most names are such functions.
    """
    if not {*map(type, values)} <= {types.FunctionType}:
        return False
    wrapped = map(getattr, values, _WRAPPED, _NOTHING)
    return {*map(type, wrapped)} <= {type(None)}


_WRAPPED, _NOTHING = repeat("__wrapped__"), repeat(None)


def _is_core(module: str) -> bool:
    return owner(str(getattr(sys.modules[module], "__file__", ""))) in (*CORE, "stdlib")


def _is_lazy(module: str) -> bool:
    """Return whether a module of jitney imports its names on first use (`_lazy.py`)."""
    space = vars(sys.modules[module])
    return "__getattr__" in space and owner(str(space.get("__file__", ""))) == "jitney"
