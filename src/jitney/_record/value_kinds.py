"""Digest of one value by its kind: atoms, containers, arrays, callables and instances.

Functions and classes are queued here and modules noted; `values.py` follows what their code reads.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import struct
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.extend.core
import jax.extend.core.primitives
import numpy as np
from jax.core import Tracer

from .._errors import Where
from .._jax.arrays import bytes_of
from .._jax.jitted import JITTED, jit_options
from .._jax.mesh import Mesh, mesh_fingerprint
from .._jax.programs.large_constants import LARGE
from .._jax.trees import attribute, extended, issubdtype, words_of_keys
from .._jax.typed import Array, DType, NumPyArray, Primitive
from .._values.kinds import (
    DICT,
    FROZENSET,
    LIST,
    PROXY,
    SET,
    SLICE,
    TUPLE,
    Shape,
    exact_kind,
    kind_of,
)
from .allowlist import check_module, check_name
from .classes import (
    LEFT_OUT,
    answers_itself,
    array_classes,
    holds_hidden_state,
    instance_items,
)
from .instructions import Codes
from .memoised import (
    LruCacheContents,
    Memoised,
    attributes_of,
    is_lru_cache,
    options_of,
)
from .origin import importable, module_origin
from .unsure import NotDeterministic

_ATOMS = (type(None), bool, str, bytes, type(...), type(NotImplemented))
_TEXT: tuple[Any, ...] = (
    typing.TypeVar,
    types.GenericAlias,
    types.UnionType,
    type(typing.Union[int, str]),  # noqa: UP007
    type(typing.List[int]),  # noqa: UP006
    type(typing.Any),
)
_CONTAINERS = (LIST, TUPLE, DICT, SET, FROZENSET, PROXY, SLICE)
# attributes that JAX itself puts on a jitted function, in 0.10.0 to 0.12.0.1
_OF_JITTED = ("__wrapped__", "_jit_info", "_fun")
_OF_TEXT = ("__origin__", "__args__", "__metadata__", "__bound__", "__constraints__")
_BUILTIN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
)


class _OfOne(NamedTuple):
    one: int


_FIELD = type(vars(_OfOne)["one"])
# names that show more of an array than its elements
VIEW_NAMES = frozenset(("base", "as_strided"))
# levels of nested values
_DEEPEST = 60


def content_digest(value: NumPyArray) -> str:
    """Return a digest of the bytes of an array."""
    return hashlib.blake2b(bytes_of(value).data, digest_size=32).hexdigest()


class KindHasher(ABC):
    """Traversal of Python values, by the kind of each, that adds what it finds to one digest."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._at: dict[int, int] = {}
        # strong references: an id must not be used for a second object during the traversal
        self._held: list[object] = []
        # ids of classes already checked by `answers_itself`; `_held` keeps their instances alive
        self._open: set[int] = set()
        self._trail: list[str] = []
        self._depth = 0
        self.modules: dict[str, types.ModuleType] = {}
        """Modules that occur as values, by name; code may read any of their names."""
        # installed classes, in which the user may have set attributes that code reads
        self._installed = array_classes()
        self._passed: set[str] = set()
        # arrays with a base, which code may read by `base` or `as_strided`
        self._views: list[NumPyArray] = []
        self._asked: set[str] = set()
        # text values, text elements of arrays, and the words in texts of code
        self._texts: set[str] = set()
        self._has_sets = False
        # code that makes a new set out of a set among its values
        self._remakers: list[tuple[str, types.CodeType]] = []
        self._words: set[str] = set()
        # functions and classes wait in a queue, since a chain of calls may be longer than
        # `_DEEPEST` or the recursion limit
        self._later: list[tuple[type | types.FunctionType, list[str]]] = []
        self.arrays: dict[str, object] = {}
        """Large arrays that occur as values, by the digest of their content."""
        self.remembering: list[Memoised] = []
        """Memoised functions that were found (`memoised.py`)."""
        self.is_as_computed = True
        """True as long as all cached results of these functions are what they would compute now."""
        self.codes = Codes()
        """The user's code objects, each with the reason why its reads cannot be followed, or None.
        Such code raises nothing here, since nothing is read in that way unless it runs.
        """

    @abstractmethod
    def digest(self) -> str:
        """Return the digest of all values added so far."""

    def add(self, value: object, name: str = "") -> None:
        """Add a value and everything that it can read.

        Raises:
            NotDeterministic: The value, or something in it, cannot be compared by content.
        """
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.fail("lies too deep")
        if name:
            self._trail.append(name)
        self._add(value, type(value))
        self._depth -= 1
        if name:
            self._trail.pop()

    def _add(self, value: Any, kind: type) -> None:
        if kind is int:
            # hexadecimal, since `sys.get_int_max_str_digits()` limits decimal texts only
            self.say("int", f"{value:x}")
        elif kind in _ATOMS:
            self.say(kind.__name__, repr(value))
            self._texts.add(value if kind is str else "")
        elif kind in (float, complex):
            self.say(kind.__name__, static_text(value))
        # A shared value or a cycle: the number of its first visit keeps the aliasing in the digest.
        elif id(value) in self._at:
            self.say("again", str(self._at[id(value)]))
        else:
            self._at[id(value)] = len(self._held)
            self._held.append(value)
            self._compound(value, kind)

    def say(self, *texts: str) -> None:
        """Add texts to the digest."""
        self._said += texts

    def fail(self, what: str) -> NotDeterministic:
        """Build the `NotDeterministic` for the value at the current path, with `what` as its
        reason.
        """
        path = ".".join(self._trail[-3:])
        subject = f"`{path}`" if path else "it"
        return NotDeterministic(f"{subject} {what}")

    def _compound(self, value: object, kind: type) -> None:
        if id(kind) not in self._open:
            answers = answers_itself(kind)
            if answers is not None:
                raise self.fail(
                    f"is of a class with a `{answers}` of its own, so that its content cannot be"
                    " read"
                )
            self._open.add(id(kind))

        # A tracer is also an instance of `jax.Array`, so it is tested first.
        if isinstance(value, Tracer):
            raise self.fail("is traced by an outer transform")
        if isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, (type, types.FunctionType)):
            self.say("later")
            self._later.append((value, list(self._trail)))
        elif isinstance(value, (np.ndarray, np.generic, jax.Array)):
            self._array(value, kind)
        elif isinstance(value, np.dtype):
            self._dtype(value)
        elif isinstance(value, jax.ShapeDtypeStruct):
            is_weak = bool(getattr(value, "weak_type", False))
            parts = (value.shape, str(value.dtype), is_weak, repr(value.sharding))
            self.say("abstract", repr(parts))
        elif kind is range or exact_kind(value) in _CONTAINERS:
            self._container(value, kind)
        elif not self._callable(value, kind):
            self._instance(value, kind)

    def _many(self, parts: Sequence[tuple[str, object]]) -> None:
        self.say(str(len(parts)))
        for name, part in parts:
            self.say(name)
            self.add(part, name)

    def _container(self, value: Any, kind: type) -> None:
        self.say(kind.__name__)
        entry = kind_of(value)
        if entry is SLICE or kind is range:
            self._many([(name, getattr(value, name)) for name in SLICE.names])
        elif entry.shape is Shape.SET:
            members = entry.parts(value)
            if any(isinstance(part, (str, bytes)) for part in members):
                # Python randomises the hashes of texts in each process (PYTHONHASHSEED).
                raise self.fail("is a set of texts, whose order is another in each process")
            # in iteration order, which a loop in the traced code sees
            self.say(*map(self._alone, members))
            self._has_sets = True
        elif entry.shape is Shape.SEQUENCE:
            self._many([("", part) for part in entry.parts(value)])
        else:
            parts: list[tuple[str, object]] = []
            for key, part in value.items():
                parts.append(("", key))
                parts.append((key if isinstance(key, str) else "", part))
            self._many(parts)

    def _alone(self, part: object) -> str:
        """Return the digest of one member of a set on its own: members cannot be numbered by a
        stable order.
        """
        walk = type(self)()
        walk.add(part)
        digest = walk.digest()
        if walk.modules or walk.codes or walk.remembering:
            raise self.fail("is a set of functions or modules")
        return digest

    def _array(self, value: Array | np.generic, kind: type) -> None:
        is_key = isinstance(value, jax.Array) and issubdtype(value.dtype, extended)
        if isinstance(value, jax.Array):
            if value.is_deleted():
                raise self.fail("is an array that was donated")
            if len(value.sharding.device_set) > 1:
                raise self.fail("is an array over several devices")
            if is_key:
                if not issubdtype(value.dtype, jax.dtypes.prng_key):
                    raise self.fail(f"is an array of {value.dtype}")
                self.say("key", str(value.dtype))
        elif kind is not np.ndarray and not isinstance(value, np.generic):
            raise self.fail(f"is a {kind.__qualname__}, a kind of array that is not known")
        if getattr(value.dtype, "hasobject", False):
            raise self.fail("is an array of objects")

        # A body can see all of these: dtype, weak type, memory layout, the writeable flag, the
        # sharding.
        host = words_of_keys(value) if is_key else np.asarray(value)
        self._dtype(host.dtype)
        weak = bool(getattr(value, "weak_type", False))
        if isinstance(value, np.ndarray) and value.base is not None:
            self._views.append(value)
        if kind is np.ndarray:
            layout = repr((host.strides, host.flags.writeable))
        else:
            layout = repr(getattr(value, "sharding", None))
        # Texts in arrays count as texts of the program, for the check of "now" in `digest`.
        if host.dtype.kind in "US":
            self._texts.update(map(str, host.ravel().tolist()))
        self.say("array", kind.__name__, host.dtype.str, repr(host.shape), str(weak), layout)
        digest = content_digest(host)
        self.say(digest)
        if host.nbytes > LARGE and not is_key:
            self.arrays[digest] = value

    def _dtype(self, dtype: DType) -> None:
        if dtype.metadata is not None:
            raise self.fail("has a dtype with metadata")
        self.say("dtype", repr(dtype))
        self._texts.add(dtype.str.lstrip("<>|"))

    def _callable(self, value: Any, kind: type) -> bool:
        """Add a function-like value of a kind other than `types.FunctionType`; return False if it
        is none.
        """
        named = importable(value)
        if named is not None and not isinstance(cast("object", value), types.MethodType):
            self._qualified_name(named)
        elif isinstance(value, _BUILTIN):
            self._builtin(value)
        elif kind is types.MethodType:
            self.say("method")
            self._many([("", value.__func__), ("", value.__self__)])
        elif kind in (functools.partial, functools.partialmethod):
            self.say(kind.__name__)
            parts = (value.func, value.args, value.keywords, dict(vars(value)))
            self._many([("", part) for part in parts])
        elif kind in (staticmethod, classmethod):
            self.say(kind.__name__)
            self.add(value.__func__)
        elif kind is property:
            self.say("property")
            self._many([("", value.fget), ("", value.fset), ("", value.fdel)])
        elif kind is types.SimpleNamespace:
            self.say("namespace")
            self.add(vars(value))
        elif kind is np.ufunc:
            self._ufunc(value)
        elif kind is _FIELD:
            self.say("field", str(value.__reduce__()[1][0]))
        elif kind is functools.cached_property:
            self.say("cached_property", value.attrname or "")
            self.add(value.func)
        elif kind is JITTED:
            self._jit(value)
        elif kind is jax.sharding.NamedSharding:
            self._sharding(value)
        elif kind is Mesh:
            self.say("jitney mesh")
            self.add(value.mesh)
        elif kind is jax.sharding.Mesh:
            self.say("mesh", *mesh_fingerprint(value))
        elif is_lru_cache(value):
            self.say("remembers", options_of(value))
            self._many([("", LruCacheContents.of(value).fn), *attributes_of(value)])
            self.remembering.append(value)
        elif isinstance(value, _TEXT) or (kind.__module__ == "typing" and not callable(value)):
            self.say("text", repr(value))
            self._many(
                [
                    (name, getattr(value, name))
                    for name in _OF_TEXT
                    if getattr(value, name, None) is not None
                ]
            )
        else:
            return False
        return True

    def _qualified_name(self, named: tuple[str, str]) -> None:
        module, name = named
        # many functions share a module, which is checked once
        if module not in self._passed:
            check_module(module, stdlib=module_origin(module) == "stdlib")
            self._passed.add(module)
        check_name(module, name)
        self._asked |= VIEW_NAMES & {name}
        self.say("named", module, name)

    def _ufunc(self, value: np.ufunc) -> None:
        if getattr(np, value.__name__, None) is not value:
            raise self.fail("is a universal function of a package other than NumPy")
        self.say("ufunc", value.__name__)

    def _sharding(self, value: jax.sharding.NamedSharding) -> None:
        mesh = value.mesh
        self.say("sharding", repr((value.spec, value.memory_kind)))
        if isinstance(mesh, jax.sharding.AbstractMesh):
            self.say(repr((mesh.axis_names, mesh.axis_sizes, mesh.axis_types)))
        else:
            self.add(mesh)

    def _builtin(self, value: Any) -> None:
        owner = attribute(value, "__self__", None)
        is_of_module = owner is None or isinstance(owner, types.ModuleType)
        if isinstance(value, types.BuiltinFunctionType) and is_of_module:
            module = attribute(value, "__module__", None) or attribute(owner, "__name__", "")
            self._qualified_name((str(module), value.__name__))
            return
        self.say("builtin", kind_name(value), value.__name__)
        self.add(owner if owner is not None else attribute(value, "__objclass__", None))

    def _jit(self, value: object) -> None:
        inside = jit_options(value)
        if inside is None:
            raise self.fail("is under `jax.jit`, and this JAX does not say how")
        fn, options = inside
        if " at 0x" in options:
            raise self.fail("is under `jax.jit` with options that are identified by address")
        self.say("jit", options)
        of_users = {
            name: part
            for name, part in vars(value).items()
            if name not in _OF_JITTED and name not in LEFT_OUT
        }
        self._many([("", fn), ("", of_users)])

    def _module(self, module: types.ModuleType) -> None:
        """Add a module as a value; of its names, only those that code reads count
        (`_read_names`).
        """
        name = module.__name__
        check_module(name, stdlib=module_origin(name) == "stdlib")
        self.say("module", name)
        self.modules[name] = module

    def _instance(self, value: Any, kind: type) -> None:
        self.say("instance")
        if isinstance(value, jax.tree_util.PyTreeDef):
            node = value.node_data()
            self.say(str(value.num_leaves), str(value.num_nodes))
            self._many([("", node), ("", value.children())])
            return
        if isinstance(value, enum.Enum):
            self.add(kind)
            self._many([(value.name, value._value_)])
            return
        if isinstance(value, Where):
            # without the line number, which changes when the file is edited above it
            self.say("where", value.name)
            return
        if (kind.__module__, kind.__qualname__) == ("jitney", "Program"):
            if value.options.memory is not None:
                raise self.fail(
                    "is a program with `memory`, which is chosen by what the compiler counts"
                )
            self.say("program", repr(value.options.settled()), repr(value.core.contract))
            self.add(value.__wrapped__)
            return
        if (kind.__module__, kind.__qualname__) == ("jitney.types", "Static"):
            # Its key has stand-ins of objects, which are others in another process.
            self.say("static")
            self.add(value.leaf.value, "value")
            return
        if isinstance(value, Primitive) and not any(
            value is each for each in vars(jax.extend.core.primitives).values()
        ):
            raise self.fail(
                "is a primitive that JAX does not name, whose rules lie in tables that are not"
                " looked at"
            )
        if holds_hidden_state(kind):
            raise self.fail(
                f"is a {kind.__module__}.{kind.__qualname__}, whose content is not known"
            )
        self.add(kind)
        self._many(instance_items(value))


def kind_name(value: object) -> str:
    """Name of the type of a value."""
    return type(value).__name__


def static_text(value: float | complex) -> str:
    """Bit pattern of a number as text: 0.0 and -0.0 differ."""
    return struct.pack("<dd", value.real, value.imag).hex()
