"""The witness: compare a program with symbolic sizes, evaluated at a size, with a trace of the same
function at that size.

A symbolic trace does not show decisions that depend on a size being a number: isinstance, `try`,
NumPy, scalars of other libraries. A trace at the true size has taken the branches of plain JAX. So
both are compared as graphs, from the results down: the same operations on the same values, with
equal parameters; moves by the positions that they select (`moved.py`); constants by their bits.

Where Python computed a value from a size, the exact trace holds it as a literal. That literal is
recorded, and used in place of the symbolic program's value, since it alone is the result of the
user's arithmetic: Python's integers are unbounded, and its floats have 64 bits.

    x / (n * 0.1)    symbolic      d:f32[] = mul c 0.1, where c is n as float32
                     exact, n = 5  the literal 0.5: recorded for d
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from ..._jax.jaxprs import opened, programs, scan_parts, solve_operands, while_parts
from ..._jax.trees import words_of_keys
from ..._jax.typed import NumPyArray
from ..dims import evaluate, is_countable, is_ragged
from ..interpreter import Ranges
from ..refusal import MadeOfSize, Refused
from ..typed_jax import dtypes
from .constants import Evaluator
from .graph import Graph, Value, arguments, canonical, graph_of, place_of
from .layout_ops import source_view, zero_embedding

_SAME_NAME = {"add_any": "add", "copy_p": "copy"}
# Python and XLA round a size alike when it is converted to one of these.
_EXACT = ("int32", "int64", "float32", "float64")
# Parameters that do not affect the result, or that follow from the operands.
_PARAMETERS = (
    "sharding out_sharding unroll num_carry num_consts ft_in ft_out const_lengths linear"
    " body_nconsts cond_nconsts weak_type indices_are_sorted unique_indices debug result_avals"
    " _split_transpose"
)
_HOW = frozenset(_PARAMETERS.split())
# Operations that assemble arrays of positions; `_positions` looks through them.
_MOVES = ("broadcast_in_dim", "reshape", "concatenate", "squeeze", "transpose", "copy")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass
class Witness:
    """A comparison at one size.

    Args:
        sizes: Symbol -> size.
        ranges: Symbol -> the sizes that it stands for.
        numbers: Variable of the symbolic program -> the value that Python computed from sizes in
            its place.
        places: Variable -> the user's line of that value.
    """

    sizes: Mapping[str, int]
    ranges: Ranges
    numbers: dict[Any, np.ndarray[Any, Any]] = field(default_factory=dict[Any, Any])
    places: dict[Any, str] = field(default_factory=dict[Any, str])
    _known: Evaluator = field(default_factory=Evaluator)
    _todo: list[tuple[Value, Value, Value | None]] = field(
        default_factory=list[tuple[Value, Value, Value | None]]
    )
    # The operation whose operands are compared, for messages.
    _at: Value | None = None
    _seen: dict[tuple[int, int], tuple[object, object]] = field(
        default_factory=dict[tuple[int, int], tuple[object, object]]
    )

    def compare(self, symbolic: object, exact: object) -> None:
        """Compare a program with symbolic sizes with the same at these sizes.

        Raises:
            Refused: They differ.
        """
        if len(opened(symbolic)[0].outvars) != len(opened(exact)[0].outvars):
            raise MadeOfSize

        # Arguments are paired by position, through shared keys. From here on `a` is the symbolic
        # side and `b` the exact one.
        keys = [object() for _ in opened(symbolic)[0].invars]
        a = graph_of(symbolic, arguments(symbolic, self.sizes, keys), self.sizes)
        b = graph_of(exact, arguments(exact, {}, keys), {})
        self._graphs(a, b)

        # A worklist keeps long programs within Python's recursion limit.
        while self._todo:
            *pair, self._at = self._todo.pop()
            self._values(*pair)

    def _once(self, a: object, b: object) -> bool:
        """Return True the first time that a pair is compared. The pair is stored, since an id is
        unique only while its object lives.
        """
        known = (id(a), id(b)) in self._seen
        self._seen[id(a), id(b)] = (a, b)
        return not known

    def _graphs(self, a: Graph, b: Graph, *around: Value) -> None:
        if len(a.outs) != len(b.outs) or len(a.effects) != len(b.effects):
            self._differ(*a.effects, *b.effects, *around, *a.outs, *b.outs)
        for one, two in zip((*a.outs, *a.effects), (*b.outs, *b.effects), strict=True):
            self._compare_next(one, two, around[0] if around else None)

    def _compare_next(self, a: Value, b: Value, around: Value | None) -> None:
        self._todo.append((a, b, around))

    def _values(self, a: Value, b: Value) -> None:
        if not self._once(a, b):
            return
        if a.shape == b.shape and a.dtype != b.dtype:
            self._differ(
                a,
                b,
                what=f"has {b.dtype} at {self._size}, and {a.dtype} where the size is not known",
            )
        if a.shape != b.shape:
            self._differ(a, b)
        # Empty at each size: nothing to compare.
        if 0 in a.shape and not any(map(is_ragged, getattr(a.var, "aval", a).shape)):
            return
        if a.const is not None and b.const is not None:
            if not _equal(a.const, b.const):
                self._differ(a, b)
            return
        if a.is_sized and self._is_size(a, b):
            return

        # Moves: compare the positions, then the values below.
        below, beside = source_view(a, self._known), source_view(b, self._known)
        if below.base is not a or beside.base is not b:
            if below.same_places(beside):
                self._compare_next(below.base, beside.base, a if a.eqn is not None else self._at)
            else:
                self._unlike(a, b)
            return

        # Writes into zeros: likewise. All else is compared operation by operation.
        put, placed = zero_embedding(a, self._known), zero_embedding(b, self._known)
        if put is None or placed is None:
            self._operations(a, b)
        elif (
            put.shape == placed.shape
            and all(map(np.array_equal, put.places, placed.places))
            and put.updates.same_places(placed.updates)
        ):
            self._compare_next(put.updates.base, placed.updates.base, a)
        else:
            self._differ(a, b)

    def _is_size(self, a: Value, b: Value) -> bool:
        """Return whether a value is a size itself, converted through dtypes that Python and XLA
        round alike, and equal to the other constant.
        """
        inner = a
        while inner.name in ("convert_element_type", "copy") and str(inner.dtype) in _EXACT:
            (inner,) = inner.reads
        if inner.name != "dim_as_value" or str(inner.dtype) not in _EXACT or b.const is None:
            return False
        dim = inner.params["dim"]
        return is_countable(dim, self.ranges) and _equal(
            np.asarray(evaluate(dim, inner.scope)).astype(a.dtype), b.const
        )

    def _unlike(self, a: Value, b: Value) -> None:
        """Compare two values that are made by different operations, which only known values may be.

        Constants, and arrays with a symbolic axis, must be equal. Another value that depends on
        sizes is recorded: Python's result takes the place of the symbolic program's.
        """
        if not (a.is_known and b.is_known):
            self._differ(a, b)
        if not a.is_sized or any(map(is_ragged, a.var.aval.shape)):
            if not _equal(self._known(a), self._known(b)):
                self._differ(a, b)
            return
        if len(a.eqn.outvars) > 1:
            self._differ(a, b)
        value = np.asarray(self._known(b))
        # A variable that stands for several values (a body traced once and called twice) must have
        # the same value each time.
        before = self.numbers.setdefault(a.var, value)
        self.places.setdefault(a.var, place_of(a))
        if not _equal(before, value):
            self._differ(a, b)

    def _operations(self, a: Value, b: Value) -> None:
        if a.key is not None and a.key is b.key:
            return

        # Known values may be made by different operations; all others by the same, with one
        # exception: a loop up to a size (`_counted`).
        names = (_name(a), _name(b))
        if a.is_known and b.is_known and names[0] != names[1]:
            plain, other = _without_unit(a, self._known), _without_unit(b, self._known)
            if plain is a and other is b:
                self._unlike(a, b)
            else:
                self._compare_next(plain, other, self._at)
        elif names == ("while", "scan"):
            self._counted(a, b)
        elif a.eqn is None or b.eqn is None or names[0] != names[1] or a.index != b.index:
            self._differ(a, b)
        elif (other := _other_param(a, b)) is not None:
            held = (
                f"`{a.name}` holds the size in `{other}`, which no rule reads"
                if self._text(a, other) == self._text(b, other)
                else None
            )
            self._differ(a, b, what=held)
        elif self._once(a.reads, b.reads):
            compare = {
                "scan": self._scan,
                "while": self._while,
                "cond": self._cond,
                "custom_linear_solve": self._solve,
            }.get(a.name)
            (compare or self._plainly)(a, b)

    def _text(self, value: Value, param: str) -> str:
        """A parameter as text, with sizes in place of symbols."""
        text = _ADDRESS.sub("", str(value.params.get(param)))
        for symbol, size in value.scope.items():
            text = re.sub(rf"\b{symbol}\b", str(size), text)
        return text

    def _plainly(self, a: Value, b: Value) -> None:
        if (
            a.name.startswith(("gather", "scatter"))
            and len(a.reads) == len(b.reads)
            and a.reads[1].dtype != b.reads[1].dtype
        ):
            self._positions(a, b, a.reads[1], b.reads[1])
            self._pairs(a, b, (a.reads[0], *a.reads[2:]), (b.reads[0], *b.reads[2:]))
        else:
            self._pairs(a, b, a.reads, b.reads)
        # The `update_jaxpr` of a scatter follows from its name.
        if a.name.startswith("scatter"):
            return
        mine, other = programs(a.params), programs(b.params)
        if len(mine) != len(other):
            self._differ(a, b)
        for one, two in zip(mine, other, strict=True):
            self._bodies(a, b, (one, []), (two, []))

    def _pairs(self, a: Value, b: Value, mine: Sequence[Value], other: Sequence[Value]) -> None:
        if len(mine) != len(other):
            self._differ(a, b)
        for one, two in zip(mine, other, strict=True):
            self._compare_next(one, two, a)

    def _positions(self, a: Value, b: Value, mine: Value, other: Value) -> None:
        """Compare the positions of a gather or scatter whose dtypes differ.

        With x64, JAX uses 32 bits where it knows that the positions fit, so not where a size is a
        symbol. Constants are the same positions in both. Others may be beyond 32 bits, where JAX
        truncates them: `x[2**32 + 3]` is `x[3]` at a known size, and `x[-1]` in 64 bits.
        """
        if other.const is not None:
            self._compare_next(
                mine,
                replace(other, dtype=mine.dtype, const=np.asarray(other.const).astype(mine.dtype)),
                a,
            )
        elif (
            mine.name == other.name
            and mine.name in _MOVES
            and mine.shape == other.shape
            and _other_param(mine, other) is None
        ):
            for one, two in zip(mine.reads, other.reads, strict=True):
                self._positions(a, b, one, two)
        else:
            what = (
                f"takes its positions as {other.dtype} at {self._size}, and as {mine.dtype} where"
                " the size is not known"
            )
            self._differ(a, b, what=what)

    def _bodies(
        self,
        a: Value,
        b: Value,
        mine: tuple[object, Sequence[Value]],
        other: tuple[object, Sequence[Value]],
    ) -> None:
        """Compare two sub-jaxprs: their leading arguments are given as values, the others are
        paired by position.
        """
        free = [len(opened(program)[0].invars) - len(given) for program, given in (mine, other)]
        if free[0] != free[1]:
            self._differ(a, b)
        keys = [object() for _ in range(free[0])]
        self._graphs(_body(a, *mine, keys), _body(b, *other, keys), a, b)

    def _scan(self, a: Value, b: Value) -> None:
        mine, other = scan_parts(a.eqn, list(a.reads)), scan_parts(b.eqn, list(b.reads))
        for part in (1, 2):
            self._pairs(a, b, mine[part], other[part])
        self._bodies(a, b, (a.params["jaxpr"], mine[0]), (b.params["jaxpr"], other[0]))

    def _while(self, a: Value, b: Value) -> None:
        mine, other = while_parts(a.eqn, list(a.reads)), while_parts(b.eqn, list(b.reads))
        self._pairs(a, b, mine[2], other[2])
        for part, name in enumerate(("cond_jaxpr", "body_jaxpr")):
            self._bodies(a, b, (a.params[name], mine[part]), (b.params[name], other[part]))

    def _cond(self, a: Value, b: Value) -> None:
        self._compare_next(a.reads[0], b.reads[0], a)
        if len(a.params["branches"]) != len(b.params["branches"]):
            self._differ(a, b)
        for one, two in zip(a.params["branches"], b.params["branches"], strict=True):
            self._bodies(a, b, (one, a.reads[1:]), (two, b.reads[1:]))

    def _solve(self, a: Value, b: Value) -> None:
        """Compare two `custom_linear_solve` by their `solve` programs; the other programs serve
        derivatives, which are traced by now.
        """
        given = [solve_operands(value.eqn, list(value.reads)) for value in (a, b)]
        free = [len(value.reads) - sum(value.params["const_lengths"]) for value in (a, b)]
        fixed = [
            operands[: len(operands) - count] for operands, count in zip(given, free, strict=True)
        ]
        self._pairs(a, b, given[0][len(fixed[0]) :], given[1][len(fixed[1]) :])
        self._bodies(
            a, b, (a.params["jaxprs"].solve, fixed[0]), (b.params["jaxprs"].solve, fixed[1])
        )

    def _counted(self, a: Value, b: Value) -> None:
        """Compare a `fori_loop`, which JAX lowers to a `while` where the bound is a symbol, and to
        a `scan` where it is a number.
        """
        # The carry of the `while` is (counter, bound, ...), that of the `scan` (counter, ...).
        of_condition, of_body, start = while_parts(a.eqn, list(a.reads))
        constants, carry, xs = scan_parts(b.eqn, list(b.reads))
        keys = [object() for _ in start]
        condition = _body(a, a.params["cond_jaxpr"], of_condition, keys).outs[0]
        body = _body(a, a.params["body_jaxpr"], of_body, keys)
        first, last = start[0], start[1]

        # The loop counts: `counter < bound`, and the body returns the bound unchanged.
        counts = (
            condition.name == "lt"
            and [read.key for read in condition.reads] == keys[:2]
            and body.outs[1].key is keys[1]
        )
        known = (
            first.is_known
            and last.is_known
            and carry[0].is_known
            and not xs
            and not b.params["reverse"]
        )

        # The `scan` does as many iterations, and returns the same without the bound (result 1).
        rounds = int(self._known(last)) - int(self._known(first)) if counts and known else -1
        index = a.index - (a.index > 1)
        if (
            b.params["length"] != max(rounds, 0)
            or rounds < 0
            or a.index == 1
            or index != b.index
            or len(start) != len(carry) + 1
        ):
            self._differ(a, b)
        if self._once(a.reads, b.reads):
            self._pairs(a, b, [first, *start[2:]], carry)
            other = _body(b, b.params["jaxpr"], constants, [keys[0], *keys[2:]])
            self._graphs(Graph((body.outs[0], *body.outs[2:]), body.effects), other, a, b)

    @property
    def _size(self) -> str:
        return f"size {' and '.join(map(str, self.sizes.values()))}"

    def _differ(self, *values: Value, what: str | None = None) -> Any:
        around: tuple[Value, ...] = () if self._at is None else (self._at,)
        places = [place_of(value) for value in (*values, *around)]
        place = next((text for text in places if text), "")
        raise Refused(place, what or f"does other operations at {self._size}")


def _name(value: Value) -> str:
    return _SAME_NAME.get(value.name, value.name)


def _body(value: Value, program: object, given: Sequence[Value], keys: Sequence[object]) -> Graph:
    """The graph of a sub-jaxpr, whose leading arguments are given."""
    free = arguments(program, value.scope, [*given, *keys])[len(given) :]
    return graph_of(program, [*given, *free], value.scope, place_of(value))


def _other_param(a: Value, b: Value) -> str | None:
    """The name of a parameter that differs; None if all are equal."""
    names = sorted((a.params.keys() | b.params.keys()) - _HOW)
    return next(
        (
            name
            for name in names
            if canonical(a.params.get(name), a.scope) != canonical(b.params.get(name), b.scope)
        ),
        None,
    )


def _without_unit(value: Value, known: Evaluator) -> Value:
    """Strip an operation that changes nothing, such as 0 + x or 1 * x: JAX counts positions by
    0 + 1 * iota where a size is a symbol.
    """
    unit = {"mul": 1, "add": 0}.get(value.name)
    for read, other in (value.reads, value.reads[::-1]) if unit is not None else ():
        if (
            read.const is not None
            and np.all(np.asarray(read.const) == unit)
            and other.shape == value.shape
        ):
            return other
    return value


def _equal(a: Any, b: Any) -> bool:
    """Return whether two constants are equal to the bit."""
    if a is b:
        return True
    if np.shape(a) != np.shape(b):
        return False
    x, y = _bits(a), _bits(b)
    return (
        x.dtype == y.dtype
        and x.shape == y.shape
        and np.array_equal(x.reshape(-1).view(np.uint8), y.reshape(-1).view(np.uint8))
    )


def _bits(x: jax.Array) -> NumPyArray:
    is_key = dtypes.issubdtype(getattr(x, "dtype", np.float32), dtypes.prng_key)
    return np.ascontiguousarray(words_of_keys(x) if is_key else x)
