"""Content digest of a value and of everything that it can read: code, closures, globals, and the
values reachable from those.

Two processes with equal digests would trace the same program. The user's own code is hashed by
content: functions by their bytecode, defaults, cells and globals; classes by all their attributes
and bases; modules by those of their names that any code here reads. Installed packages are hashed
by name only; `libraries.py` checks that they have not changed. Any other value raises
`NotDeterministic`.
"""

from __future__ import annotations

import hashlib
import re
import sys
import types
from array import array
from collections.abc import Callable, Generator, Sequence

import equinox

from .._jax.trees import attribute, is_node
from .._values.attributes import closure_variables
from .allowlist import FORMATS, check_module, check_name
from .classes import (
    annotations_text,
    class_items,
    is_set_by_user,
    virtual_subclasses,
)
from .dynamic_attrs import ASKING
from .functions import Global, attribute_of, globals_of, is_users
from .instructions import CodeReads, codes_in, digest_of, reads_of
from .memoised import (
    LruCacheContents,
    Memoised,
    TracedCacheEntries,
    is_as_computed,
    name_of,
)
from .origin import importable, is_installed, module_origin
from .sets import OF_SETS
from .unsure import NotDeterministic
from .value_kinds import VIEW_NAMES, KindHasher

_NOW = frozenset(("now", "today"))
_TIMES = re.compile(r"\s*[<>=|]?(M8?$|M8\[|M8|datetime64)")
_SEEN_THROUGH = (equinox.Module, tuple)


class ContentHasher(KindHasher):
    """Traversal of Python values that adds what it finds to one digest.

    Args:
        scope: Digest of the settings under which memoised functions compute their results; None
            leaves the results of memoised functions out.
        traced: Cache entries of memoised functions that the trace itself has added: left out of the
            digest.
    """

    def __init__(
        self,
        scope: str | None = None,
        traced: TracedCacheEntries | None = None,
    ) -> None:
        super().__init__()
        self._scope = scope
        self._traced = traced

    def digest(self) -> str:
        """Return the digest of all values added so far, including what their functions, classes and
        modules read.

        Raises:
            NotDeterministic: Something that may be read cannot be compared by content.
        """

        # Reading a name can lead to more functions, whose code reads more names, so the order
        # matters: the queue first, then names of modules and classes, then the checks that need all
        # names and texts.
        self._drain()
        self._read_names()
        # NumPy turns the texts "now" and "today" into the current time, wherever they meet a
        # `datetime64`.
        if not _NOW.isdisjoint(text.strip().lower() for text in self._texts) and any(
            map(_TIMES.match, self._texts)
        ):
            raise NotDeterministic(
                "it has times of NumPy's and the text 'now' or 'today', of which each process makes"
                " another time"
            )

        # Code that only could make a set is refused only if a set is among the values.
        if self._has_sets:
            for name, code in self._remakers:
                self.codes.add(
                    codes_in(code),
                    f"`{name}` may make a set of another one, whose order may be another in each"
                    " process",
                )

        for at, view in enumerate(self._views):
            if VIEW_NAMES & self._asked:
                self.say("view", str(at))
                self.add(view.base, "base")

        if self._scope is not None:
            self._read_memories(alone(self._scope))

        # The lengths separate the texts: ("ab", "c") and ("a", "bc") must have different digests.
        lengths = array("Q", map(len, self._said)).tobytes()
        texts = "".join(self._said).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(lengths + texts, digest_size=32).hexdigest()

    def _drain(self) -> None:
        at = 0
        while at < len(self._later):
            value, self._trail = self._later[at]
            at += 1
            self.say("then", str(self._at[id(value)]))
            if isinstance(value, type):
                self._class(value)
            else:
                self._function(value)
        self._later.clear()
        self._trail = []

    def add_read(self, module: str, name: str) -> None:
        """Add the value of a module's name, or the name of an attribute that code may read of any
        value (`module` is empty).

        Raises:
            NotDeterministic: The value cannot be compared by content.
        """
        if not module:
            self._asked.add(name)
            return
        check_module(module, stdlib=module_origin(module) == "stdlib")
        self.say("asked", module, name)
        self.add(attribute_of(sys.modules[module], name), f"{module}.{name}")

    def _read_names(self) -> None:
        """Add the attributes that code may read of modules used as values, and attributes that the
        user has set in installed classes.
        """
        read: set[tuple[int, str]] = set()

        # A fixpoint: a value added here may be code that reads further names, or a further module.
        while True:
            places: list[tuple[str, object, set[str]]] = [
                (name, self.modules[name], self._names_read(name)) for name in sorted(self.modules)
            ]
            bases = dict.fromkeys(base for kind in self._installed for base in kind.__mro__)
            places += [(base.__qualname__, base, self._set_in(base)) for base in bases]
            new = {
                (id(place), asked): (of, place)
                for of, place, names in places
                for asked in sorted(names)
            }
            if new.keys() <= read:
                return
            for (at, asked), (of, place) in new.items():
                if (at, asked) not in read:
                    read.add((at, asked))
                    self.say("of", of, asked)
                    self.add(vars(place)[asked], f"{of}.{asked}")
                    self._drain()

    def _read_memories(self, digest: Callable[[object], str]) -> None:
        """Add the cached results of memoised functions: of all of them, as soon as one differs from
        what would be computed now.
        """

        # A fixpoint again: cached results may lead to further memoised functions.
        count = 0
        while count < len(self.remembering):
            start, count = count, len(self.remembering)
            memories = [(fn, self._entries(fn)) for fn in self.remembering[:count]]
            if self.is_as_computed and all(is_as_computed(*memory, digest) for memory in memories):
                continue
            start = 0 if self.is_as_computed else start
            self.is_as_computed = False
            for fn, entries in memories[start:]:
                if entries:
                    name = name_of(fn)
                    self.say("remembered", str(self._at[id(fn)]))
                    self._many([(name, part) for entry in entries for part in entry])
            self._drain()
            self._read_names()

    def _entries(self, remembering: Memoised) -> Sequence[tuple[object, object]]:
        entries = LruCacheContents.of(remembering).entries
        return (
            entries if self._traced is None else self._traced.earlier_entries(remembering, entries)
        )

    def _set_in(self, kind: object) -> set[str]:
        space = vars(kind)
        return {name for name in self._asked & space.keys() if is_set_by_user(space[name])}

    def _names_read(self, name: str) -> set[str]:
        """Return the names of a module that code may read: as an attribute, or through a class
        pattern of `match` if the module is the user's.
        """
        there = vars(self.modules[name]).keys()
        if is_installed(name):
            return self._asked & there
        if self._asked & FORMATS:
            raise NotDeterministic(
                f"it formats, and holds the module `{name}`: a format can read any name of that"
            )
        return (self._asked | self._words) & there

    def _class(self, value: type) -> None:
        named = importable(value)
        self.say(f"node {is_node(value)}", *virtual_subclasses(value))
        if named is not None:
            self._qualified_name(named)
            self._installed.append(value)
            return
        module = attribute(value, "__module__", "")
        self.say("class", str(module), value.__qualname__, value.__name__)
        if isinstance(module, str) and module.partition(".")[0] == "jaxtyping":
            # The name of a jaxtyping class spells dtype and axes; only its array type can be a
            # user's class.
            array_type = getattr(value, "array_type", None)
            is_users_own = array_type is not None and not is_installed(array_type.__module__)
            self._many([("", array_type)] if is_users_own else [])
            return
        if is_node(value) and not issubclass(value, _SEEN_THROUGH):
            raise self.fail("is registered as a node of JAX's trees, in a way that cannot be read")
        self.say(*annotations_text(value))
        self._many([("", base) for base in value.__bases__])
        if type(value) is not type:
            self.add(type(value))
        self._many(class_items(value))

    def _function(self, value: types.FunctionType) -> None:
        code = value.__code__
        users = is_users(value)
        if not users:
            named = importable(value)
            if named is not None:
                self._qualified_name(named)
                return
            module = value.__module__ or ""
            check_module(module, stdlib=module_origin(module) == "stdlib")
        if code.co_filename.startswith("<@beartype"):
            raise self.fail("is checked by beartype, whose code has another text in each process")
        if hasattr(value, "registry") and hasattr(value, "dispatch"):
            raise self.fail(
                "is chosen by type (`functools.singledispatch`), and may be added to anywhere"
            )
        self.say(
            "function", digest_of(code), value.__name__, value.__qualname__, str(value.__module__)
        )
        self._many([*closure_variables(value, unset=_EMPTY).items()])
        self._many([("", value.__defaults__), ("", value.__kwdefaults__)])
        self._many(
            [
                (name, part)
                for name, part in sorted(value.__dict__.items())
                if users or name == "__wrapped__"
            ]
        )

        # Library functions are hashed by bytecode, closure and defaults; their globals are not
        # followed.
        if users:
            self.say(*annotations_text(value))
            names = reads_of(code)
            self._asked |= names.attributes
            self._words |= names.words
            self._texts |= names.words
            self._globals(value, names)
            if OF_SETS & names.attributes or any(chain[0] == "type" for chain in names.chains):
                self._remakers.append((value.__name__, code))

    def _globals(self, fn: types.FunctionType, names: CodeReads) -> None:

        # Code whose reads cannot be followed is refused when it runs (`trace_monitor.py`), not when
        # it is seen.
        try:
            reads = [*_check_reads(fn, names)]
        except NotDeterministic as unsure:
            self.say("barred")
            why = str(unsure)
            if why.startswith("it "):
                why = f"`{fn.__name__}` {why.removeprefix('it ')}"
            self.codes.add(codes_in(fn.__code__), why)
            return
        self.codes.add(codes_in(fn.__code__), None)
        for read in reads:
            self.say("reads", read.name)
            if not _is_harmless(fn.__code__, names, read):
                self.add(read.value, f"{fn.__name__}: {read.name}")


def alone(scope: str) -> Callable[[object], str]:
    """Return a function that computes the digest of one value and its reads, under the given
    settings.
    """

    def digest(value: object) -> str:
        walk = ContentHasher()
        walk.say(scope)
        walk.add(value)
        return walk.digest()

    return digest


def _check_reads(fn: types.FunctionType, names: CodeReads) -> Generator[Global]:
    """Yield every global that a function reads.

    Raises:
        NotDeterministic: A read cannot be followed, or leads to something that is not a function of
            its arguments.
    """
    for read in globals_of(fn, names):
        for module in read.through:
            check_module(module, stdlib=module_origin(module) == "stdlib")
        if read.module is not None and not _is_harmless(fn.__code__, names, read):
            check_name(read.module, read.name.rpartition(".")[2])
        yield read


def _is_harmless(
    code: types.CodeType,
    names: CodeReads,
    read: Global,
) -> bool:
    """Return whether a builtin that is barred elsewhere is used for its own purpose here: in code
    that `dataclasses` generates, `hash` in a `__hash__`, or `getattr` where its operands are known
    (`dynamic_attrs.py`).
    """
    if read.module != "builtins":
        return False
    if read.name in ASKING:
        return read.value is ASKING[read.name] and read.name not in names.blind
    if code.co_qualname.startswith("__create_fn__."):
        return True
    return read.name == "hash" and code.co_name == "__hash__"


_EMPTY = ("empty cell",)
