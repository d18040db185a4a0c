"""Python values of every kind at random, and what each fold over them says of one.

`python -m tests.signature._drawn_values --values 10000 --record FILE` writes what the folds say, for
a comparison of two versions: equal files are equal classes, copies, digests and data.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import decimal
import fractions
import functools
import json
import random
import types
import weakref
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import numpy as np

from tests.signature._static_values import Colour, Frozen, Loose, Metres, Pair, Scale, with_unit


class Stack(list):
    """A list with attributes."""


class Table(dict):
    """A dict with attributes, whose iteration lies."""

    def items(self):
        return ()


class Bag(set):
    """A set with attributes."""


class Plain:
    """An object that is equal to nothing but itself."""

    def __init__(self, held):
        self.held = held

    def method(self):
        return self.held


class Slots:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


@dataclasses.dataclass
class Row(list):
    """A record that is a list too."""

    label: Any = None


def one(x):
    return x


def two(x, by=2):
    return x * by


# Shared by all values: a fold by identity says the same of each.
SHARED = (Plain(1), Plain([1]), Slots(1), np.random.default_rng(0), Plain(Plain(2)))

ATOMS: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: rng.choice((0, 1, 2, -1, True, False, 2**70)),
    lambda rng: rng.choice((0.0, -0.0, 1.0, float("nan"), float("inf"))),
    lambda rng: rng.choice((0j, complex(-0.0, 0), 1 + 0j)),
    lambda rng: rng.choice((None, ..., NotImplemented, "", "a", "b", b"", b"a")),
    lambda rng: rng.choice((Colour.RED, Colour.BLUE, int, float, Loose, one, two, max, np.sin)),
    lambda rng: rng.choice((range(3), range(0, 3, 2), range(0, 4, 2))),
    lambda rng: rng.choice((decimal.Decimal("1"), decimal.Decimal("1.0"), fractions.Fraction(1))),
    lambda rng: rng.choice((Metres(0.0), Metres(-0.0), np.float32(1), np.int8(1), np.bool_(1))),
    lambda rng: rng.choice((np.dtype("f4"), np.dtype("i4"), np.dtype([("a", "f4")]))),
)
ARRAYS: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: np.arange(rng.choice((0, 2)), dtype=rng.choice(("f4", "i4", "c8", "?"))),
    lambda rng: np.asfortranarray(np.arange(4.0).reshape(2, 2)),
    lambda rng: np.arange(4.0).reshape(2, 2),
    lambda rng: with_unit([1.0], rng.choice(("m", "km"))),
    lambda rng: np.array([(1, None)], dtype=[(rng.choice("ab"), "O"), ("n", "O")]),
)


def drawn(rng: random.Random, depth: int = 3) -> Any:
    """A value with parts of at most `depth` levels."""
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(ATOMS)(rng)
    if rng.random() < 0.15:
        return rng.choice(ARRAYS)(rng)
    if rng.random() < 0.05:
        return rng.choice(SHARED)
    try:
        return rng.choice(NODES)(rng, lambda: drawn(rng, depth - 1))
    # Two members of one hash that cannot be compared, as a dtype and a slice.
    except (TypeError, ValueError):
        return None


def _hashable(part: Callable[[], Any]) -> Any:
    for _ in range(20):
        value = part()
        try:
            hash(value)
        except TypeError:
            continue
        return value
    return 0


def _items(rng: random.Random, part: Callable[[], Any]) -> list[tuple[Any, Any]]:
    return [(_hashable(part), part()) for _ in range(rng.randrange(3))]


def _list(rng: random.Random, part: Callable[[], Any]) -> list[Any]:
    return [part() for _ in range(rng.randrange(3))]


def _with(value: Any, rng: random.Random, part: Callable[[], Any]) -> Any:
    """The value, sometimes with an attribute of its own."""
    if rng.random() < 0.5:
        value.note = part()
    return value


def _object_array(parts: list[Any]) -> Any:
    made = np.empty(len(parts), object)
    made[:] = [*parts]
    return made


def _row(rng: random.Random, part: Callable[[], Any]) -> Row:
    made = Row(part())
    made.extend(_list(rng, part))
    return made


def _scale(factor: Any) -> Scale:
    # Without its `__init__`, which flattens the arguments: some dicts cannot be sorted.
    made = object.__new__(Scale)
    for name, part in (("factor", factor), ("name", "scale")):
        object.__setattr__(made, name, part)
    return made


def _proxy(rng: random.Random, part: Callable[[], Any]) -> Any:
    return types.MappingProxyType(rng.choice((dict, Table))(_items(rng, part)))


NODES: tuple[Callable[[random.Random, Callable[[], Any]], Any], ...] = (
    _list,
    lambda rng, part: tuple(_list(rng, part)),
    lambda rng, part: Pair(part(), part()),
    lambda rng, part: dict(_items(rng, part)),
    lambda rng, part: {rng.choice("ab"): part() for _ in range(2)},
    lambda rng, part: collections.OrderedDict(_items(rng, part)),
    lambda rng, part: collections.defaultdict(rng.choice((int, list)), _items(rng, part)),
    lambda rng, part: collections.Counter({rng.choice("ab"): 1}),
    lambda rng, part: collections.deque(_list(rng, part), rng.choice((None, 9))),
    lambda rng, part: {_hashable(part) for _ in range(rng.randrange(3))},
    lambda rng, part: frozenset(_hashable(part) for _ in range(rng.randrange(3))),
    lambda rng, part: slice(part(), part()),
    lambda rng, part: functools.partial(rng.choice((one, max)), part(), key=part()),
    lambda rng, part: _with(functools.partial(one, part()), rng, part),
    lambda rng, part: Loose(part(), part()),
    lambda rng, part: Frozen(part()),
    lambda rng, part: _scale(part()),
    lambda rng, part: _with(Stack(_list(rng, part)), rng, part),
    lambda rng, part: _with(Table(_items(rng, part)), rng, part),
    lambda rng, part: _with(Bag({_hashable(part)}), rng, part),
    _row,
    _proxy,
    lambda rng, part: Loose(part()).__eq__,
    lambda rng, part: rng.choice(SHARED[:2]).method,
    lambda rng, part: _object_array(_list(rng, part)),
    lambda rng, part: bytearray(rng.choice((b"", b"a"))),
    lambda rng, part: types.SimpleNamespace(held=part()),
    lambda rng, part: rng.choice((iter([]), weakref.ref(SHARED[0]), [].append)),
)


def many(count: int, seed: int = 0) -> list[Any]:
    """So many values, the same ones in each process."""
    return [drawn(random.Random(seed * 1_000_003 + i)) for i in range(count)]


def described(value: object, beside: object = None, depth: int = 0) -> str:
    """A value in words, with its attributes; beside its original also where the two are one
    object.
    """
    kind = type(value)
    name = kind.__qualname__
    if depth > 8:
        return name
    mark = " same" if value is beside and not _is_small(value) else ""

    def parts(values: Any, others: Any) -> str:
        both = [*others] if others is not None else []
        both += [None] * (len(values) - len(both))
        return ", ".join(described(a, b, depth + 1) for a, b in zip(values, both, strict=False))

    same = type(beside) is kind
    held = vars(value) if hasattr(value, "__dict__") and not isinstance(value, type) else {}
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        return f"{name} {getattr(value, '__name__', '')}"
    own = ""
    if held and not isinstance(value, types.MappingProxyType):
        others = vars(beside) if same else None
        own = f" {[*held]} {parts([*held.values()], others and [*others.values()])}"
    if isinstance(value, np.ndarray | np.generic):
        inner = parts(value.ravel().tolist(), None)
        return f"{name}{mark} {value.dtype} {value.shape} {np.asarray(value).strides} {inner}{own}"
    if isinstance(value, dict):
        keys, items = [*dict.keys(value)], [*dict.values(value)]
        ours = [*dict.keys(beside), *dict.values(beside)] if same else None  # type: ignore[arg-type]
        factory = getattr(value, "default_factory", "")
        return f"{name}{mark} {factory} {{{parts([*keys, *items], ours)}}}{own}"
    if isinstance(value, types.MappingProxyType):
        return f"{name}{mark} {parts([*value.keys(), *value.values()], None)}"
    if isinstance(value, set | frozenset):
        return f"{name}{mark} {sorted(described(part, None, depth + 1) for part in value)}{own}"
    if isinstance(value, list | tuple | collections.deque):
        most = getattr(value, "maxlen", "")
        return f"{name}{mark} {most} [{parts([*value], [*beside] if same else None)}]{own}"  # type: ignore[misc]
    if isinstance(value, slice):
        return f"slice {parts([value.start, value.stop, value.step], None)}"
    if isinstance(value, functools.partial):
        return f"{name}{mark} {parts([value.func, value.args, value.keywords], None)}{own}"
    if isinstance(value, types.MethodType):
        return f"method {value.__func__.__qualname__} {described(value.__self__, None, depth + 1)}"
    if isinstance(value, float | complex | int | str | bytes | bytearray | range):
        return f"{name} {value!r}{own}"
    return f"{name}{mark}{own}"


def _is_small(value: object) -> bool:
    return isinstance(value, int | float | complex | str | bytes | type(None) | type)


def _result(fold: Callable[[Any], object], value: object) -> object:
    try:
        return fold(value)
    except Exception as error:  # noqa: BLE001 - what is compared is the error too
        return f"{type(error).__name__}: {error}"


def folds() -> tuple[dict[str, Callable[[Any], Hashable]], dict[str, Callable[[Any], object]]]:
    """Folds whose classes count, and folds whose results count."""
    import jax

    from jitney._export.values import data_of, value_of
    from jitney._interface.derived import _constant_parts
    from jitney._record.values import ContentHasher
    from jitney._serialized.form import Forms
    from jitney._signature.records import holds_array
    from jitney._values import mutable_objects as objects
    from jitney._values.array_likes import array_likes
    from jitney._values.copies import snapshot
    from jitney._values.recent_statics import is_alike
    from jitney._values.static_values import static_key
    from jitney._values.strict_keys import _value_key

    def digest(value: object) -> str:
        walk = ContentHasher()
        walk.add(value)
        return walk.digest()

    def form(value: object) -> object:
        # The structure alone, with every array and leaf as it is.
        leaves, treedef = jax.tree.flatten(value)
        return Forms(()).to_data(treedef, tuple(enumerate(leaves)))

    def counted(value: object) -> object:
        return [
            objects.is_immutable(value),
            type(objects.first_consumable(value)).__name__,
            objects.bytes_in(value),
            objects.leads_nowhere(value),
            holds_array(value),
            sorted(type(each).__name__ for each in objects.plain_objects(value)),
            sorted(type(each).__name__ for each in objects.objects_by_identity(value)),
            len([*array_likes(value)]),
        ]

    return (
        {
            "key": static_key,
            "strict": lambda value: _value_key(value, ()),
            "state": objects.state,
        },
        {
            "copy": lambda value: described(snapshot(value), value),
            "alike": lambda value: is_alike(value, snapshot(value)),
            "data": data_of,
            "read": lambda value: described(value_of(data_of(value))),
            "digest": digest,
            "form": form,
            "counted": counted,
            "constant": lambda value: (_constant_parts(value) or ["none"]).__repr__()[:200],
        },
    )


def record(count: int, seed: int = 0) -> dict[str, list[object]]:
    """What the folds say of so many values: numbers of classes, or texts."""
    values = many(count, seed)
    by_class, by_result = folds()
    said: dict[str, list[object]] = {"value": [described(value) for value in values]}
    for name, fold in by_class.items():
        numbers: dict[object, int] = {}
        keys = [_result(fold, value) for value in values]
        said[name] = [
            key if isinstance(key, str) else numbers.setdefault(key, i)
            for i, key in enumerate(keys)
        ]
    for name, fold in by_result.items():
        said[name] = [repr(_result(fold, value)) for value in values]
    return said


def main() -> None:
    """Write the record of these files."""
    parser = argparse.ArgumentParser(prog="python -m tests.signature._drawn_values")
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    options.record.write_text(json.dumps(record(options.values)))


if __name__ == "__main__":
    main()
