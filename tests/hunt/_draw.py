"""A case from a seed and an index: a dtype, a size, numbers, and programs of one to four lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from . import (
    _arrays,
    _elementwise,
    _infinite,
    _libraries,
    _looks,
    _overlaps,
    _sizes,
    _structure,
    _values,
)
from ._program import Program, evaluated
from ._recipe import CLASSES, PLACE, Exact, Recipe
from ._sizes import pick

Aval = jax.ShapeDtypeStruct
PROBES = (7, 11)  # two sizes at which lines are tried: what differs between them has the axis
GROUPS: Mapping[str, Sequence[Recipe]] = {
    "elementwise": _elementwise.RECIPES,
    "reduced": _arrays.REDUCED,
    "linear": _arrays.LINEAR,
    "ordered": _arrays.ORDERED,
    "moved": _arrays.MOVED,
    "shaped": _arrays.SHAPED,
    "polynomials": _arrays.POLYNOMIALS,
    "drawn": _arrays.DRAWN,
    "structure": _structure.SAME,
    "rows": _structure.ROWS,
    "loops": _structure.LOOPS,
    "together": _structure.TOGETHER,
    "libraries": _libraries.RECIPES,
    "sizes": _sizes.RECIPES,
}
AMONG: Mapping[str, Sequence[Recipe]] = {
    **GROUPS,
    "looks": _looks.RECIPES,
    "overlaps": _overlaps.RECIPES,
    "derivatives": _infinite.RECIPES,
}
"""Operations that may come in turn; built upon are those of `GROUPS`."""
ALL = [*(recipe for group in GROUPS.values() for recipe in group), *GROUPS["sizes"] * 2]
LIGHT = [
    recipe
    for name in ("elementwise", "reduced", "ordered", "moved", "sizes")
    for recipe in GROUPS[name]
]
HEAVY = (
    "isin",
    "setdiff",
    "setxor",
    "union",
    "intersect",
    "gradient",
    "histogram",
    "cov(",
    "corrcoef",
    "rankdata",
    "mode",
)
DTYPES = (
    *("float32",) * 8,
    *("bfloat16", "float16", "int32", "float64", "complex64") * 2,
    "int8",
    "uint8",
    "bool",
    "int16",
    "uint16",
    "uint32",
    "int64",
    "uint64",
    "int4",
    "uint4",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
)
INDEX_DTYPES = ("int32", "int32", "int8", "uint8", "int16", "uint16", "uint32", "int4")
TAKES = {
    "x0": "n",
    "x1": "n",
    "m0": "n 3",
    "m1": "n 3",
    "t0": "3 n",
    "q0": "n n",
    "w0": "3",
    "s0": "",
    "i0": "n",
    "j0": "3",
    "b0": "n",
}
SHAPES = {"v": "n", "u": "n", "m": "n 3", "t": "3 n", "q": "n n", "w": "3", "s": ""}
_RANK = {"bits": 0, "close": 1, "loose": 2}


@dataclass(frozen=True)
class Expression:
    """A program of one result, and what is known of it."""

    program: Program
    recipes: tuple[Recipe, ...]
    exact: Exact

    @property
    def name(self) -> str:
        return self.program.gives[0]


@dataclass(frozen=True)
class Case:
    """What one seed and index name."""

    seed: int
    index: int
    dtype: str
    index_dtype: str
    flavour: str
    n: int
    expressions: tuple[Expression, ...]

    @property
    def x64(self) -> bool:
        return self.dtype in ("float64", "int64", "uint64", "complex128")

    @contextmanager
    def numbers(self) -> Iterator[None]:
        """The scope in which the case is drawn and run: as a user's is by default, but for
        float64.
        """
        with jax.enable_x64(self.x64), jax.numpy_dtype_promotion("standard"):
            yield

    @cached_property
    def other(self) -> int:
        """Another size of the same power of two, if there is one."""
        return self.n - 1 if self.n > 3 and (self.n - 1) & (self.n - 2) else self.n

    def others(self, count: int) -> Sequence[int]:
        """So many other sizes of the same power of two, as far as there are such."""
        if count == 1:
            return (self.other,)
        low = 1 << (self.n - 1).bit_length() >> 1
        return (*range(self.n - 1, low, -1), *range(self.n + 1, 2 * low + 1))[:count]

    def arrays(self, n: int) -> dict[str, Any]:
        """All arguments at a size; the same numbers each time."""
        rng = np.random.default_rng([self.seed, self.index, n, 1])
        made = {}
        for name, axes in TAKES.items():
            if axes == "n n" and n > 64:
                continue
            shape = tuple(n if part == "n" else int(part) for part in axes.split())
            if name[0] in "ij":
                made[name] = _values.indices(
                    rng, shape, _values.dtype_of(self.index_dtype), n, self.flavour
                )
            else:
                dtype = np.bool_ if name == "b0" else _values.dtype_of(self.dtype)
                made[name] = _values.made(rng, shape, dtype, self.flavour)
        return made


def drawn(seed: int, index: int, many: int = 8, among: Sequence[Recipe] = ALL) -> Case:
    """The case of a seed and an index. Each operation comes by itself in turn; most are then built
    upon.

    Args:
        seed: Of all numbers that are drawn.
        index: Which case of that seed.
        many: How many programs it has.
        among: The operations that come in turn.
    """
    rng = np.random.default_rng([seed, index])
    size = rng.random()
    n = int(
        pick(rng, _values.SIZES if size < 0.7 else _values.LONG if size < 0.92 else _values.LONGER)
    )
    # Lines that are differentiated are short, and built upon each other.
    is_derived = among is _infinite.RECIPES
    if is_derived:
        n = int(pick(rng, _infinite.SIZES))
    dtype = pick(rng, _infinite.DTYPES if is_derived else DTYPES)
    case = Case(seed, index, dtype, pick(rng, INDEX_DTYPES), pick(rng, _values.FLAVOURS), n, ())
    order = np.random.default_rng(seed).permutation(len(among))
    found: list[Expression] = []
    with case.numbers():
        for k in range(many):
            first = among[order[(index * many + k) % len(among)]]
            if n > 300 and (first not in LIGHT or any(word in first.text for word in HEAVY)):
                first = pick(rng, LIGHT)
            writer = Writer(rng, case, f"r{k}")
            made = writer.expression(first, among if is_derived else None)
            found += [made] if made is not None else []
    return Case(seed, index, case.dtype, case.index_dtype, case.flavour, n, tuple(found))


class Writer:
    """Writes one program, line by line; each line is tried on abstract values of two sizes."""

    def __init__(self, rng: Any, case: Case, prefix: str):
        self.rng, self.case, self.prefix = rng, case, prefix
        self.avals: dict[str, tuple[Any, Any]] = {}
        for name, axes in TAKES.items():
            if axes == "n n" and case.n > 40:
                continue
            dtype = case.index_dtype if name[0] in "ij" else "bool" if name == "b0" else case.dtype
            self.avals[name] = tuple(
                Aval(
                    tuple(n if part == "n" else int(part) for part in axes.split()),
                    _values.dtype_of(dtype),
                )
                for n in PROBES
            )
        self.newest: str | None = None
        self.used: list[Recipe] = []

    def expression(self, first: Recipe, among: Sequence[Recipe] | None = None) -> Expression | None:
        """A program that begins with a line, and goes on with others, of all or among some."""
        kept: list[tuple[str, str]] = []
        more = int(self.rng.choice([0, 1, 2, 3], p=[0.4, 0.3, 0.2, 0.1]))
        exact: Exact = "bits"
        for k in range(1 + more):
            pool = among
            if pool is None:
                pool = LIGHT if self.case.n > 300 else GROUPS[pick(self.rng, tuple(GROUPS))]
            for _ in range(4):
                recipe = first if k == 0 else pick(self.rng, pool)
                line = self.line(recipe, f"{self.prefix}{'abcd'[k]}")
                if line is not None:
                    kept.append(line)
                    exact = max(
                        exact,
                        recipe.exact,
                        "close" if recipe.inner else "bits",
                        key=_RANK.__getitem__,
                    )
                    break
            else:
                break
            if self.newest is None:
                break
        if not kept:
            return None
        return self.finished(kept, exact)

    def finished(self, lines: Sequence[tuple[str, str]], exact: Exact) -> Expression | None:
        """The program of some lines, if an argument of it has the axis."""
        program = Program(tuple(TAKES.items()), tuple(lines), (lines[-1][0],)).pruned()
        if not any("n" in axes for _, axes in program.takes):
            return None
        return Expression(program, tuple(self.used), exact)

    def alone(self, recipe: Recipe) -> Expression | None:
        """One operation by itself."""
        line = self.line(recipe, f"{self.prefix}a")
        if line is None:
            return None
        return self.finished([line], recipe.exact)

    def line(self, recipe: Recipe, name: str) -> tuple[str, str] | None:
        """A line that traces at both sizes, or None."""
        self.inside: list[Recipe] = []
        text = self.fill(recipe, self.avals, self.newest, 0)
        if text is None:
            return None
        outs = []
        for at in (0, 1):
            try:
                outs.append(
                    jax.eval_shape(
                        lambda values, text=text: evaluated(text, values),
                        {k: v[at] for k, v in self.avals.items()},
                    )
                )
            except Exception:  # noqa: BLE001
                return None
        leaves = [jax.tree.leaves(out) for out in outs]
        if (
            not leaves[0]
            or len(leaves[0]) != len(leaves[1])
            or any(_size(a) > 20_000 for a in leaves[0])
        ):
            return None
        growth = max(_size(b) / max(_size(a), 1) for a, b in zip(*leaves, strict=True))
        if growth > 2 and self.case.n > 64:
            return None
        self.used += [recipe, *self.inside]
        single = len(leaves[0]) == 1 and isinstance(outs[0], Aval)
        self.newest = (
            name
            if single
            and hasattr(outs[0], "shape")
            and not jax.dtypes.issubdtype(outs[0].dtype, jax.dtypes.extended)
            else None
        )
        if self.newest:
            self.avals[name] = (outs[0], outs[1])
        return name, text

    def fill(
        self, recipe: Recipe, avals: Mapping[str, tuple[Any, Any]], newest: str | None, depth: int
    ) -> str | None:
        """The text of a recipe with operands in its places."""
        allowed = CLASSES[recipe.takes]
        chosen: dict[str, str] = {}

        def dtype_fits(name: str) -> bool:
            return str(avals[name][0].dtype) in allowed

        def candidates(place: str) -> list[str]:
            fitting = []
            for name, (a, b) in avals.items():
                if place in SHAPES:
                    ok = (a.shape, b.shape) == tuple(
                        _shape(SHAPES[place], n) for n in PROBES
                    ) and dtype_fits(name)
                elif place == "i":
                    ok = (a.shape, b.shape) == ((PROBES[0],), (PROBES[1],)) and str(
                        a.dtype
                    ) in CLASSES["int"]
                elif place == "j":
                    ok = a.shape == b.shape == (3,) and str(a.dtype) in CLASSES["int"]
                elif place == "b":
                    ok = (a.shape, b.shape) == ((PROBES[0],), (PROBES[1],)) and a.dtype == np.bool_
                elif place == "x":
                    ok = (
                        a.ndim >= (0 if "e" in avals else 1)
                        and (a.shape != b.shape or "e" in avals)
                        and dtype_fits(name)
                    )
                else:  # y, z: like x
                    like = avals.get(chosen.get("x", ""))
                    ok = like is not None and (a.shape, a.dtype, b.shape) == (
                        like[0].shape,
                        like[0].dtype,
                        like[1].shape,
                    )
                if ok:
                    fitting.append(name)
            return fitting

        for place in dict.fromkeys(PLACE.findall(recipe.text)):
            if place in "AKCPQTFN":
                continue
            found = candidates(place)
            if not found:
                return None
            others = [name for name in found if name not in chosen.values()]
            if others and self.rng.random() < 0.85:
                found = others
            first = next(iter(chosen.values()), None)
            kin = [
                name
                for name in found
                if first is not None and avals[name][0].dtype == avals[first][0].dtype
            ]
            favoured = newest if newest in found and newest not in chosen.values() else None
            chosen[place] = favoured or str(pick(self.rng, kin or found))
        texts = dict(chosen)
        operand = next(iter(chosen.values()), None)
        if operand is None:
            return None
        a, b = avals[operand]
        ragged = [axis for axis, (p, q) in enumerate(zip(a.shape, b.shape, strict=True)) if p != q]
        axes = ragged if ragged and self.rng.random() < 0.7 else list(range(a.ndim)) or [0]
        texts["A"] = str(pick(self.rng, axes))
        texts["K"] = str(int(self.rng.integers(-1, 4)))
        texts["C"] = str(pick(self.rng, ("0.5", "2.0", "0.1")))
        texts["T"] = str(
            pick(
                self.rng,
                (
                    "float32",
                    "float16",
                    "bfloat16",
                    "int32",
                    "int8",
                    "uint8",
                    "int16",
                    "uint32",
                    "bool_",
                    "complex64",
                ),
            )
        )
        size = f"{operand}.shape[{ragged[0]}]" if ragged else f"{operand}.size"
        texts["P"] = _sizes.arithmetic(self.rng, size)
        texts["Q"] = _sizes.decision(self.rng, size)
        if "{F}" in recipe.text:
            inner = self.inner(recipe, avals, operand, depth)
            if inner is None:
                return None
            texts["F"] = inner
        return PLACE.sub(lambda match: texts[match[1]], recipe.text)

    def inner(
        self, recipe: Recipe, avals: Mapping[str, tuple[Any, Any]], operand: str, depth: int
    ) -> str | None:
        """A line of `e`, which may hold another."""
        drop = {"row": 0, "column": 1}.get(recipe.inner)
        like = []
        for aval in avals[operand]:
            shape = (
                aval.shape
                if drop is None
                else tuple(size for axis, size in enumerate(aval.shape) if axis != drop)
            )
            like.append(Aval(shape, aval.dtype))
        inside = {"e": (like[0], like[1])}
        if self.rng.random() < 0.3:
            inside |= avals  # the operand too: one value in two roles
        names = [
            name for name in GROUPS if depth == 0 or name not in ("structure", "rows", "loops")
        ]
        for _ in range(6):
            made = pick(self.rng, GROUPS[pick(self.rng, names)])
            text = self.fill(made, inside, "e", depth + 1)
            if text is not None and "e" in text:
                self.inside.append(made)
                return text
        return None


def _shape(axes: str, n: int) -> tuple[int, ...]:
    return tuple(n if part == "n" else int(part) for part in axes.split())


def _size(aval: Any) -> int:
    return int(np.prod(getattr(aval, "shape", ()), dtype=np.int64))
