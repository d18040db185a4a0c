"""Hunt where calls come in: one function, called with one thing after another: `python -m
tests.hunt.calls --calls 4000 --seed 1`.

A body tells all that it sees of what it is given, beside numbers that are computed. What comes back
must be what the plain function gives for this very call. So a program that stands for the call of
another value, a copy that is not its original, a mask that is lost, an object that two callers
share: each tells of something else. A `JitneyError` is a refusal; any other error is a finding.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import importlib
import importlib.util
import itertools
import pathlib
import re
import sys
import time
import traceback
import types
import typing
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from beartype import beartype
from jax.experimental import io_callback
from jaxtyping import Array, Float, Int, ScalarLike, jaxtyped

from jitney import JitneyError, optimize


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Bag(dict):
    """A dict whose methods do other things than a dict's."""

    __slots__ = ("unit",)

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("read only")

    def items(self) -> Any:
        return [(key, 0) for key in self]


class Rows(list):
    def __init__(self, *, of: Any):
        super().__init__(of)


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: Any


@dataclasses.dataclass
class Loose:
    n: Any


class Plain:
    """Equal to nothing but itself."""

    def __init__(self, n: Any):
        self.n = n


class Dataset:
    """What looks like an array: a file's numbers, which may be others at the next call."""

    def __init__(self, numbers: Any):
        self.numbers = np.asarray(numbers, np.float32)
        self.shape, self.dtype = self.numbers.shape, self.numbers.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numbers

    def __getitem__(self, at: Any) -> Any:
        return self.numbers[at]


class Unit(np.ndarray):
    def __array_finalize__(self, made_from: Any) -> None:
        self.unit = getattr(made_from, "unit", None)


class Row(eqx.Module):
    x: Float[Array, "n"]
    scale: Float[Array, ""]
    note: Any = eqx.field(static=True, default=None)


def bag(rng: Any) -> Bag:
    made = Bag(a=pick(rng, ATOMS)(rng))
    made.unit = rng.choice(["m", "km"])
    return made


def dtype_of(rng: Any) -> Any:
    fields = [("a", "i1"), ("b", "f4")]
    packed = {"names": ["a", "b"], "formats": ["i1", "f4"], "offsets": [0, 4]}
    return pick(
        rng,
        [
            np.dtype("f4"),
            np.dtype(fields, align=True),
            np.dtype(packed),
            np.dtype("f4", metadata={"unit": "m"}),
        ],
    )


def moment(rng: Any) -> Any:
    zone = pick(
        rng,
        [
            None,
            datetime.UTC,
            datetime.timezone(datetime.timedelta(hours=1)),
            datetime.timezone(datetime.timedelta(0), "a"),
        ],
    )
    return datetime.datetime(
        2020, 1, 1, int(rng.integers(11, 14)), tzinfo=zone, fold=int(rng.integers(2))
    )


def unit_array(rng: Any) -> Any:
    made = np.arange(3, dtype=np.float32).view(Unit)
    made.unit = rng.choice(["m", "km"])
    return made


def pick(rng: Any, among: Any) -> Any:
    return among[int(rng.integers(len(among)))]


Make = Callable[[Any], Any]
ATOMS: list[Make] = [
    lambda rng: pick(
        rng,
        [
            0,
            1,
            True,
            False,
            1.0,
            0.0,
            -0.0,
            1 + 0j,
            None,
            "a",
            b"a",
            Colour.RED,
            Colour.BLUE,
            int,
            np.sin,
        ],
    ),
    lambda rng: decimal.Decimal(pick(rng, ["1", "1.0", "1.00", "0", "-0", "NaN"])),
    lambda rng: fractions.Fraction(int(rng.integers(1, 3)), 2),
    lambda rng: range(0, int(rng.integers(3, 5)), int(rng.integers(1, 3))),
    moment,
    dtype_of,
    lambda rng: pathlib.PureWindowsPath(pick(rng, ["a", "A"])),
    lambda rng: pick(
        rng, [typing.Literal[1, 2], typing.Literal[2, 1], list[int], int | None, None | int]
    ),
    lambda rng: re.compile("a", pick(rng, [0, re.IGNORECASE])),
    lambda rng: slice(pick(rng, [0, False, None]), 1),
    lambda rng: np.float32(rng.integers(2)),
]
HOLDERS: list[Callable[[Any, Make], Any]] = [
    lambda rng, of: [of(rng) for _ in range(int(rng.integers(3)))],
    lambda rng, of: (of(rng), of(rng)),
    lambda rng, of: (
        {"a": of(rng), "b": of(rng)} if rng.integers(2) else {"b": of(rng), "a": of(rng)}
    ),
    lambda rng, of: collections.Counter(pick(rng, ["aab", "ab", ""])),
    lambda rng, of: collections.OrderedDict(a=of(rng)),
    lambda rng, of: collections.defaultdict(pick(rng, [int, list]), a=of(rng)),
    lambda rng, of: bag(rng),
    lambda rng, of: Rows(of=[of(rng)]),
    lambda rng, of: types.MappingProxyType(pick(rng, [collections.Counter("a"), {"a": 1}])),
    lambda rng, of: functools.partial(max, of(rng), key=of(rng)),
    lambda rng, of: Frozen(of(rng)),
    lambda rng, of: Loose(of(rng)),
    lambda rng, of: Plain(of(rng)),
    lambda rng, of: frozenset(pick(rng, ["ab", "a", ""])),
    lambda rng, of: set(pick(rng, ["ab", "a", ""])),
]
ARRAYS: list[Make] = [
    lambda rng: rng.normal(size=3).astype(np.float32),
    lambda rng: rng.normal(size=int(rng.integers(1, 4))),
    lambda rng: rng.integers(0, 9, 3),
    lambda rng: rng.integers(0, 2**40, 3),
    lambda rng: np.int64(2) ** int(rng.integers(0, 40)),
    lambda rng: np.ma.array(rng.normal(size=3).astype(np.float32), mask=rng.integers(0, 2, 3)),
    lambda rng: Dataset(rng.normal(size=3)),
    unit_array,
    lambda rng: np.ones((2, 2), np.float32).view(np.matrix),
    lambda rng: jnp.asarray(rng.normal(size=3), jnp.float32),
]


def value_of(rng: Any, arrays: bool, depth: int = 2) -> Any:
    """A value, new in each call; the same one often, since choices are few."""
    atoms = [*ATOMS, *ARRAYS] if arrays else ATOMS
    if depth == 0 or rng.integers(3) == 0:
        return pick(rng, atoms)(rng)
    return pick(rng, HOLDERS)(rng, lambda rng: value_of(rng, arrays, depth - 1))


TREES = (tuple, list, dict, collections.OrderedDict, collections.defaultdict)


def told(value: Any, *, is_data: bool = True) -> str:
    """All that a body sees of a value, the numbers of arrays apart; by the methods of Python's own
    classes. A float that JAX finds is an array to it, unless it is no data.
    """
    is_data = is_data and type(value) in (*TREES, float, complex)
    if is_data and type(value) in (float, complex):
        return "array()"
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        unit = getattr(value, "unit", None) if isinstance(value, Unit) else None
        mask = value.mask.tolist() if isinstance(value, np.ma.MaskedArray) else None
        return f"array{tuple(np.shape(value))}{unit or ''}{mask or ''}"
    name = type(value).__qualname__
    if isinstance(value, dict):
        base = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        inside = [
            f"{told(key, is_data=False)}: {told(part, is_data=is_data)}"
            for key, part in base.items(value)
        ]
        if type(value) in (dict, collections.defaultdict):  # JAX takes these apart by their keys
            inside.sort()
        return f"{name}{inside}{getattr(value, 'unit', '')}{getattr(value, 'default_factory', '')}"
    if isinstance(value, types.MappingProxyType):
        return f"{name}{told(value.copy(), is_data=False)}"
    if isinstance(value, list | tuple):
        return f"{name}{[told(part, is_data=is_data) for part in (list if isinstance(value, list) else tuple).__iter__(value)]}"
    if isinstance(value, set | frozenset):
        return f"{name}{sorted(told(part, is_data=False) for part in value)}"
    if isinstance(value, functools.partial):
        return f"{name}{told((value.func, value.args, value.keywords), is_data=False)}"
    if isinstance(value, slice):
        return f"{name}{told((value.start, value.stop, value.step), is_data=False)}"
    if isinstance(value, Plain) or dataclasses.is_dataclass(value):
        return f"{name}({told(value.n, is_data=False) if not isinstance(value, type) else ''})"
    if isinstance(value, np.dtype):
        return f"{value!r}{value.isalignedstruct}{value.metadata}"
    return f"{name} {value!r}"


def numbers_of(value: Any) -> list[Any]:
    """The arrays and floats that JAX finds in a value."""
    return [
        jnp.asarray(leaf) * 2
        for leaf in jax.tree.leaves(value)
        if isinstance(leaf, np.ndarray | np.generic | jax.Array) or type(leaf) in (float, complex)
    ]


def body(x: Any, value: Any) -> Any:
    """What it is given, in words; its arrays, twice; the value again, if it is static; and an
    object that it makes.
    """
    return x + 1, told(value), numbers_of(value), Plain([len(told(value))])


def body_of_static(x: Any, value: Any) -> Any:
    """The same of a value that is named in `static`: its floats are no data."""
    words = told(value, is_data=False)
    return x + 1, words, [], Plain([len(words)])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Step:
    n: Any


# How a number is put into an argument, and read in the body.
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "argument": (lambda a: a, lambda part: part),
    "dict": (lambda a: {"a": a, "b": "text"}, lambda part: part["a"]),
    "list": (lambda a: [1, a], lambda part: part[1]),
    "tuple": (lambda a: ((a,), None), lambda part: part[0][0]),
    "registered": (lambda a: Step(int(a)), lambda part: part.n),
    "nested": (lambda a: Step({"a": [a]}), lambda part: part.n["a"][0]),
}


def checkers() -> dict[str, Callable[[Any], Any]]:
    """Run-time type checkers, those that are installed."""
    found: dict[str, Callable[[Any], Any]] = {
        "beartype": beartype,
        "jaxtyped": jaxtyped(typechecker=beartype),
    }
    if importlib.util.find_spec("typeguard") is not None:
        typechecked = importlib.import_module("typeguard").typechecked
        found |= {
            "typeguard": typechecked,
            "jaxtyped, typeguard": jaxtyped(typechecker=typechecked),
        }
    return found


def scaled(
    x: Float[Array, "n d"], w: Float[Array, "d"], rate: float | Float[Array, ""], power: int
) -> Float[Array, "n"]:
    return rate * (x @ w) ** power


def annotated_float(
    x: Float[Array, "n d"], w: Float[Array, "d"], rate: float, power: int
) -> Float[Array, "n"]:
    return rate * (x @ w) ** power


def like_a_scalar(
    x: Float[Array, "n d"], w: Float[Array, "d"], rate: ScalarLike, power: int
) -> tuple[Float[Array, ""], Float[Array, "d"]]:
    return jnp.sum(x @ w) * rate, jnp.max(x, axis=0) ** power


def unnamed(x: Float[Array, "n d"], w: Float[Array, "d"], rate, power):
    return jnp.cumsum(x @ w) * rate + power


def change(rng: Any, value: Any) -> None:
    """Change something in place, where that can be done."""
    if (
        isinstance(value, Plain | Loose) and not dataclasses.is_dataclass(type(value))
    ) or isinstance(value, Loose):
        value.n = pick(rng, ATOMS)(rng)
    elif isinstance(value, collections.Counter):
        value["a"] += 1
    elif isinstance(value, list):
        list.append(value, pick(rng, ATOMS)(rng))
    elif isinstance(value, np.ndarray) and value.size and not isinstance(value, np.ma.MaskedArray):
        value[...] = value[::-1]
    elif isinstance(value, Dataset):
        value.numbers += 1


class Hunt:
    """One run: what was called, refused and wrong."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.calls = self.refused = 0
        self.findings: list[str] = []

    def static(self, length: int = 24) -> None:
        """One function, and static values one after the other; some again, some changed in
        place.
        """
        arrays = bool(self.rng.integers(2))
        options = pick(
            self.rng,
            [{"static": "value"}, {}, {"static": "value", "cache": False}, {"contracts": False}],
        )
        is_static = "static" in options
        plain, tell = (
            (body_of_static if is_static else body),
            functools.partial(told, is_data=not is_static),
        )
        program, before = optimize(**options)(plain), []
        results: list[tuple[Any, Any]] = []
        for _ in range(length):
            if before and self.rng.integers(2):
                value = pick(self.rng, before)
                if self.rng.integers(2):
                    change(self.rng, value)
            else:
                value = value_of(self.rng, arrays and "static" not in options)
                before.append(value)
            x = np.float32(self.rng.integers(9))
            words = tell(value)
            self.compare(
                lambda x=x, value=value: program(x, value),
                lambda x=x, value=value: plain(x, value),
                words,
                results,
            )
            if tell(value) != words:
                self.findings.append(f"the caller's {words} became {tell(value)} under {options}")
        for made, want in results:
            if made.n != want.n:
                self.findings.append(f"a result was changed from outside: {made.n} for {want.n}")

    def compare(
        self, ours: Callable[[], Any], theirs: Callable[[], Any], what: str, results: list[Any]
    ) -> None:
        self.calls += 1
        try:
            number, words, numbers, made = ours()
        except JitneyError:
            self.refused += 1
            return
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            self.findings.append(f"raw error of {what}:\n{traceback.format_exc(limit=-3)}")
            return
        want_number, want_words, want_numbers, want_made = theirs()
        if (number, words) != (want_number, want_words):
            self.findings.append(f"{what} was seen as {words}")
        for got, want in itertools.zip_longest(numbers, want_numbers):
            if got is None or want is None or not np.allclose(got, want, rtol=1e-5, equal_nan=True):
                self.findings.append(f"{what}: {got} for {want}")
        results.append((made, want_made))
        if self.rng.integers(2):
            made.n.append("changed")
            want_made.n.append("changed")

    def stack(self) -> None:
        """A stack of modules under `vmap`, beside `filter_vmap`; or one module, shared."""
        members, size = int(self.rng.integers(1, 4)), int(self.rng.integers(1, 4))
        stacked = bool(self.rng.integers(2))
        lead = (members,) if stacked else ()
        row = Row(
            jnp.asarray(self.rng.normal(size=(*lead, size)), jnp.float32),
            jnp.asarray(self.rng.normal(size=lead), jnp.float32),
        )
        rates = jnp.asarray(self.rng.normal(size=(members,)), jnp.float32)

        def fit(row: Row, rate: Float[Array, ""]) -> Float[Array, ""]:
            return jnp.sum(row.x * row.scale) * rate

        pads = pick(self.rng, [{}, {"pad": {"member": "pow2"}}, {"chunk": {"member": 2}}])
        self.calls += 1
        got = optimize(vmap="member", **pads)(fit)(row, rates)
        want = eqx.filter_vmap(fit, in_axes=(0 if stacked else None, 0))(row, rates)
        if got.shape != want.shape or not np.allclose(got, want, rtol=1e-5):
            self.findings.append(f"a stack of {members} under {pads}: {got} for {want}")

    def effects(self) -> None:
        """Callbacks in a mapped axis that is padded or cut: as often as there are rows."""
        rows, log = int(self.rng.integers(1, 7)), list[float]()
        kind = pick(self.rng, ["debug", "io"])

        def say(x: Any) -> Any:
            if kind == "debug":
                jax.debug.callback(lambda a: log.append(float(a)), x)
                return x
            io_callback(lambda a: log.append(float(a)), None, x)
            return x

        def f(x: Float[Array, ""]) -> Float[Array, ""]:
            return say(x) * 2

        options = pick(
            self.rng,
            [
                {},
                {"pad": {"b": "pow2"}},
                {"chunk": {"b": 4}},
                {"pad": {"b": "pow2"}, "chunk": {"b": 4}},
            ],
        )
        x = jnp.arange(float(rows))
        self.calls += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = optimize(vmap="b", **options)(f)(x)
        except JitneyError:
            self.refused += 1
            return
        jax.effects_barrier()
        if not np.array_equal(got, 2 * x) or sorted(log) != [*map(float, range(rows))]:
            self.findings.append(f"{kind} callbacks of {rows} rows under {options}: {sorted(log)}")

    def numbers(self, length: int = 12) -> None:
        """One function of Python numbers at drawn places, some of which its body needs while it is
        traced, at all sizes or at some; against the numbers of plain Python.
        """
        count = int(self.rng.integers(1, 4))
        places = [pick(self.rng, [*PLACES]) for _ in range(count)]
        needs = [
            pick(self.rng, ["never", "never", "always", "long", "short"]) for _ in range(count)
        ]

        def f(x: Float[Array, "n"], *parts: Any) -> Float[Array, "n"]:
            for place, need, part in zip(places, needs, parts, strict=True):
                number = PLACES[place][1](part)
                is_long = x.shape[0] > 4 if need in ("long", "short") else None
                if need == "always" or (is_long is not None and is_long == (need == "long")):
                    x = 2 * x if number > 1 else x + number
                else:
                    x = x * number + 1
            return x

        options = pick(
            self.rng,
            [
                {},
                {},
                {"pad": {"n": "pow2"}},
                {"chunk": {"n": 2}},
                {"verify": True},
                {"precision": "f64"},
                {"contracts": False},
            ],
        )
        program = optimize(**options)(f)
        for _ in range(length):
            x = self.rng.normal(size=int(self.rng.integers(1, 9))).astype(np.float32)
            values = [pick(self.rng, [0.0, 0.5, 1.0, 1.5, 2.0, -3.0]) for _ in range(count)]
            parts = [PLACES[place][0](value) for place, value in zip(places, values, strict=True)]
            self.calls += 1
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    got = np.asarray(program(x, *parts))
            except JitneyError:
                self.refused += 1
                continue
            want = np.asarray(f(x, *parts))
            if got.shape != want.shape or not np.allclose(got, want, rtol=1e-5, atol=1e-5):
                self.findings.append(
                    f"{values} in {places}, needed {needs}, {len(x)} elements, under {options}:"
                    f" {got} for {want}"
                )

    def checked(self, length: int = 6) -> None:
        """A function under a type checker, above or below the decorator: right calls give what the
        plain function gives, or are refused by jitney; wrong ones are refused, by either.
        """
        rng = self.rng
        plain = pick(rng, [scaled, annotated_float, like_a_scalar, unnamed])
        name, checker = pick(rng, [*checkers().items()])
        is_above = bool(rng.integers(2))
        options = pick(
            rng,
            [
                {},
                {"pad": {"n": "pow2"}},
                {"chunk": {"n": 2}},
                {"verify": True},
                {"precision": "f64"},
                {"contracts": False},
                {"static": "rate"},
            ],
        )

        # Beartype finds no code in a program that leaves checking to it, and says so at once.
        if is_above and name == "beartype" and "contracts" in options:
            options = {}

        # A copy: checkers and programs note what they know of a function on it.
        fn = types.FunctionType(plain.__code__, plain.__globals__, plain.__name__)
        fn.__annotations__ = dict(plain.__annotations__)
        program: Any = (
            checker(optimize(**options)(fn)) if is_above else optimize(**options)(checker(fn))
        )
        for _ in range(length):
            rows, columns = int(rng.integers(1, 9)), int(rng.integers(1, 4))
            given = {
                "x": jnp.asarray(rng.normal(size=(rows, columns)), jnp.float32),
                "w": jnp.asarray(rng.normal(size=columns), jnp.float32),
                "rate": pick(rng, [0.5, 1.5, 0.0]),
                "power": int(rng.integers(1, 4)),
            }
            wrong: dict[str, Any] = pick(
                rng,
                [
                    {},
                    {},
                    {},
                    {"w": jnp.zeros(columns + 1)},
                    {"x": jnp.zeros((rows, columns), jnp.int32)},
                    {"x": jnp.zeros((rows, columns, 1))},
                    {"w": "a"},
                    {"power": "a", "rate": "a"},
                ],
            )
            self.calls += 1
            what = (
                f"{plain.__name__} {'below' if is_above else 'under'} {name},"
                f" {rows} x {columns}, {wrong}, under {options}"
            )
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    got = program(**{**given, **wrong})
            except JitneyError:
                self.refused += 1
                continue
            except Exception:  # noqa: BLE001 - of the checker, or of a body that nobody checks
                if not wrong:
                    self.findings.append(f"raw error of {what}:\n{traceback.format_exc(limit=-3)}")
                continue
            if wrong and not (plain is unnamed and "power" in wrong):
                self.findings.append(f"nobody refused {what}")
                continue
            want = jax.tree.leaves(plain(**{**given, **wrong}))
            for a, b in zip(jax.tree.leaves(got), want, strict=True):
                if a.shape != b.shape or not np.allclose(a, b, rtol=1e-4, atol=1e-4):
                    self.findings.append(f"{what}: {a} for {b}")

    def doubles(self) -> None:
        """NumPy's numbers of 64 bits under `precision="f64"`, and without: exactly these, or
        refused.
        """
        x = self.rng.integers(
            -(2 ** int(self.rng.integers(1, 62))),
            2 ** int(self.rng.integers(1, 62)),
            int(self.rng.integers(1, 6)),
        )

        def f(x: Int[Array, "n"]) -> Int[Array, "n"]:
            return x[::-1]

        options = pick(
            self.rng,
            [
                {},
                {"precision": "f64"},
                {"pad": {"n": "pow2"}},
                {"precision": "f64", "pad": {"n": "pow2"}},
                {"chunk": {"n": 2}},
            ],
        )
        self.calls += 1
        program = optimize(**options)(f)
        for _ in range(3):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    got = program(x)
            except JitneyError:
                self.refused += 1
                return
            if not np.array_equal(got, x[::-1]):
                self.findings.append(f"{x} under {options}: {got}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hunt.calls", description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    hunt = Hunt(options.seed)
    while hunt.calls < options.calls:
        way = pick(
            hunt.rng,
            [
                hunt.static,
                hunt.static,
                hunt.stack,
                hunt.effects,
                hunt.doubles,
                hunt.numbers,
                hunt.checked,
            ],
        )
        try:
            way()
        except Exception:  # noqa: BLE001 - of ours, of JAX's: none of these raises by itself
            hunt.findings.append(f"raw error in {way.__name__}:\n{traceback.format_exc(limit=-2)}")
    for finding in hunt.findings:
        print(finding)
    print(
        f"calls: seed {options.seed}, {hunt.calls} calls, {hunt.refused} refused,"
        f" {len(hunt.findings)} wrong or raw"
    )
    return 1 if hunt.findings else 0


if __name__ == "__main__":
    sys.exit(main())
