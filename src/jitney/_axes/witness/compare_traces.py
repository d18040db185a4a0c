"""The witness: compare a program with symbolic sizes, evaluated at a size, with a trace of the same
function at that size.

A symbolic trace does not show decisions that depend on a size being a number: isinstance, `try`,
NumPy, scalars of other libraries. A trace at the true size has taken the branches of plain JAX. So
both are compared as graphs, from the results down: the same operations on the same values, with
equal parameters; moves by the positions that they select (`layout_ops.py`); constants by their
bits.

Where Python computed a value from a size, the exact trace holds it as a literal. That literal is
recorded, and used in place of the symbolic program's value, since it alone is the result of the
user's arithmetic: Python's integers are unbounded, and its floats have 64 bits.

    x / (n * 0.1)    symbolic      d:f32[] = mul c 0.1, where c is n as float32
                     exact, n = 5  the literal 0.5: recorded for d
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from ..._jax.programs.jaxprs import (
    has_its_constants,
    open_jaxpr,
    programs,
    scan_parts,
    while_parts,
)
from ..._jax.programs.program_parts import written_by
from ..._jax.typed import NumPyArray, Var
from ..dims import evaluate, is_countable, is_ragged
from ..interpreter import Ranges
from ..refusal import AsksForSize, MadeOfSize
from ..unified.number_of_size import NUMBER_OF_SIZE
from .constants import Evaluator, equal_bits
from .graph import (
    Graph,
    Value,
    arguments,
    graph_of,
    place_of,
)
from .layout_ops import is_whole_scatter, source_view, zero_embedding
from .operation_parts import (
    body_graph,
    count_free,
    differing_parameter,
    operation_name,
    solve_parts,
    without_unit,
)

# Python and XLA round a size alike when it is converted to one of these.
_EXACT = ("int32", "int64", "float32", "float64")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


Body = tuple[object, Sequence[Value]]
"""A sub-jaxpr, and the values of its leading arguments."""
Comparison = tuple[Value, Value, Value | None]
"""A value of each side, and the operation around them, for messages."""


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
    numbers: dict[Var, NumPyArray] = field(default_factory=dict[Var, NumPyArray])
    places: dict[Var, str] = field(default_factory=dict[Var, str])
    _known: Evaluator = field(default_factory=Evaluator)
    _todo: list[Comparison] = field(default_factory=list[Comparison])
    # The operation whose operands are compared, for messages.
    _at: Value | None = None
    _seen: dict[tuple[int, int], tuple[object, object]] = field(
        default_factory=dict[tuple[int, int], tuple[object, object]]
    )

    def compare(
        self,
        symbolic: object,
        exact: object,
    ) -> None:
        """Compare a program with symbolic sizes with the same at these sizes.

        Raises:
            Refused: They differ.
        """
        mine, other = open_jaxpr(symbolic)[0], open_jaxpr(exact)[0]
        if len(mine.outvars) != len(other.outvars):
            raise MadeOfSize

        # Arguments are paired by position, through shared keys. From here on `a` is the symbolic
        # side and `b` the exact one.
        keys = [object() for _ in mine.invars]
        given = arguments(symbolic, self.sizes, keys)
        a = graph_of(symbolic, given, self.sizes)
        b = graph_of(exact, arguments(exact, {}, keys), {})
        self._graphs(a, b)

        # A worklist keeps long programs within Python's recursion limit.
        while self._todo:
            *pair, self._at = self._todo.pop()
            self._values(*pair)

    def _visit(self, a: object, b: object) -> bool:
        """Return True the first time that a pair is compared. The pair is stored, since an id is
        unique only while its object lives.
        """
        known = (id(a), id(b)) in self._seen
        self._seen[id(a), id(b)] = (a, b)
        return not known

    def _graphs(
        self,
        a: Graph,
        b: Graph,
        *around: Value,
    ) -> None:
        if len(a.outs) != len(b.outs) or len(a.effects) != len(b.effects):
            effects = (*a.effects, *b.effects)
            self._differ(*effects, *around, *a.outs, *b.outs)
        operation = around[0] if around else None
        for one, two in zip(a.roots, b.roots, strict=True):
            self._compare_next(one, two, operation)

    def _compare_next(
        self,
        a: Value,
        b: Value,
        around: Value | None,
    ) -> None:
        self._todo.append((a, b, around))

    def _values(self, a: Value, b: Value) -> None:
        if not self._visit(a, b):
            return
        if a.shape != b.shape:
            self._differ(a, b)
        if a.dtype != b.dtype:
            what = f"has {b.dtype} at {self._size}, and {a.dtype} where the size is not known"
            self._differ(a, b, what=what)
        if a.name == NUMBER_OF_SIZE:
            if b.const is None:
                self._differ(a, b)
            self._record(a, b)
            return
        # Empty at each size: nothing to compare.
        if 0 in a.shape and not any(map(is_ragged, getattr(a.var, "aval", a).shape)):
            return
        if a.const is not None and b.const is not None:
            if not equal_bits(a.const, b.const):
                self._differ(a, b)
            return
        if a.is_sized and self._is_size(a, b):
            return

        # Moves: compare the positions, then the values below.
        known = self._known
        below = source_view(a, known)
        beside = source_view(b, known)
        if below.base is not a or beside.base is not b:
            if below.same_places(beside):
                around = self._at if a.eqn is None else a
                self._compare_next(below.base, beside.base, around)
            # Python computed the positions, which the symbolic side does not know.
            elif below.base is a and not a.is_known:
                self._operations(a, b)
            else:
                self._unlike(a, b)
            return

        # Writes into zeros: likewise. All else is compared operation by operation.
        mine = zero_embedding(a, known)
        other = zero_embedding(b, known)
        if mine is None or other is None:
            self._operations(a, b)
        elif (
            mine.shape == other.shape
            and all(map(np.array_equal, mine.places, other.places))
            and mine.updates.same_places(other.updates)
        ):
            self._compare_next(mine.updates.base, other.updates.base, a)
        else:
            self._differ(a, b)

    def _is_size(self, a: Value, b: Value) -> bool:
        """Return whether a value is a size itself, converted through dtypes that Python and XLA
        round alike, and equal to the other constant.
        """
        inner = a
        while inner.name in ("convert_element_type", "copy") and str(inner.dtype) in _EXACT:
            (inner,) = inner.reads
        if inner.name != "dim_as_value" or b.const is None:
            return False
        dim = inner.params["dim"]
        if str(inner.dtype) not in _EXACT or not is_countable(dim, self.ranges):
            return False
        size = np.asarray(evaluate(dim, inner.scope))
        return equal_bits(size.astype(a.dtype), b.const)

    def _unlike(self, a: Value, b: Value) -> None:
        """Compare two values that are made by different operations, which only known values may be.

        Constants, and arrays with a symbolic axis, must be equal. Another value that depends on
        sizes is recorded: Python's result takes the place of the symbolic program's.
        """
        if not (a.is_known and b.is_known):
            self._differ(a, b)
        var = a.var
        if var is None or not a.is_sized or any(map(is_ragged, var.aval.shape)):
            if not equal_bits(self._known(a), self._known(b)):
                self._differ(a, b)
            return
        if len(a.equation.outvars) > 1:
            self._differ(a, b)
        self._record(a, b)

    def _record(self, a: Value, b: Value) -> None:
        """Record Python's result, which takes the place of the symbolic program's value."""
        var = a.var
        if var is None or not b.is_known:
            self._differ(a, b)
        value = np.asarray(self._known(b))
        # A variable that stands for several values (a body traced once and called twice) must have
        # the same value each time.
        before = self.numbers.setdefault(var, value)
        self.places.setdefault(var, place_of(a))
        if not equal_bits(before, value):
            self._differ(a, b)

    def _operations(self, a: Value, b: Value) -> None:
        if a.key is not None and a.key is b.key:
            return

        # Known values may be made by different operations; all others by the same, with one
        # exception: a loop up to a size (`_compare_fori_loop`).
        mine, other = operation_name(a), operation_name(b)
        if a.is_known and b.is_known and mine != other:
            self._known_values(a, b)
            return
        if (mine, other) == ("while", "scan"):
            self._compare_fori_loop(a, b)
            return
        if a.eqn is None or b.eqn is None or mine != other or a.index != b.index:
            self._differ(a, b)

        # `buffer.at[:n].set(x)` has no position where n is the length of the buffer.
        if is_whole_scatter(a, self._known) and is_whole_scatter(b, self._known):
            array, _, update = a.reads
            other_array, _, other_update = b.reads
            self._pairs(a, b, [array, update], [other_array, other_update])
            return

        param = differing_parameter(a, b)
        if param is not None:
            what = None
            if self._text(a, param) == self._text(b, param):
                what = f"`{a.name}` holds the size in `{param}`, which no rule reads"
            self._differ(a, b, what=what)
        if not self._visit(a.reads, b.reads):
            return
        match a.name:
            case "scan":
                self._scan(a, b)
            case "while":
                self._while(a, b)
            case "cond":
                self._cond(a, b)
            case "custom_linear_solve":
                self._solve(a, b)
            case _:
                self._plainly(a, b)

    def _known_values(self, a: Value, b: Value) -> None:
        """Compare two values that are made by different operations, operations that change nothing
        aside.
        """
        mine = without_unit(a, self._known)
        other = without_unit(b, self._known)
        if mine is a and other is b:
            self._unlike(a, b)
        else:
            self._compare_next(mine, other, self._at)

    def _text(self, value: Value, param: str) -> str:
        """A parameter as text, with sizes in place of symbols."""
        text = _ADDRESS.sub("", str(value.params.get(param)))
        for symbol, size in value.scope.items():
            text = re.sub(rf"\b{symbol}\b", str(size), text)
        return text

    def _plainly(self, a: Value, b: Value) -> None:
        self._pairs(a, b, a.reads, b.reads)

        # The `update_jaxpr` of a scatter follows from its name, but that of `x.at[i].apply(f)`.
        if a.name.startswith("scatter"):
            if written_by(a.params) != written_by(b.params):
                self._differ(a, b, what="applies a function that its size changes")
            return
        inner, other_inner = programs(a.params), programs(b.params)
        if len(inner) != len(other_inner):
            self._differ(a, b)
        for one, two in zip(inner, other_inner, strict=True):
            if not (has_its_constants(one) and has_its_constants(two)):
                self._differ(a, b, what=f"holds a program without its constants (`{a.name}`)")
            self._bodies(a, b, (one, []), (two, []))

    def _pairs(
        self,
        a: Value,
        b: Value,
        mine: Sequence[Value],
        other: Sequence[Value],
    ) -> None:
        if len(mine) != len(other):
            self._differ(a, b)
        for one, two in zip(mine, other, strict=True):
            self._compare_next(one, two, a)

    def _bodies(
        self,
        a: Value,
        b: Value,
        mine: Body,
        other: Body,
    ) -> None:
        """Compare two sub-jaxprs: their leading arguments are given as values, the others are
        paired by position.
        """
        free = count_free(*mine)
        if free != count_free(*other):
            self._differ(a, b)
        keys = [object() for _ in range(free)]
        my_graph = body_graph(a, *mine, keys)
        other_graph = body_graph(b, *other, keys)
        self._graphs(my_graph, other_graph, a, b)

    def _scan(self, a: Value, b: Value) -> None:
        mine = scan_parts(a.equation, list(a.reads))
        other = scan_parts(b.equation, list(b.reads))
        for part in (1, 2):
            self._pairs(a, b, mine[part], other[part])
        program, other_program = a.params["jaxpr"], b.params["jaxpr"]
        self._bodies(a, b, (program, mine[0]), (other_program, other[0]))

    def _while(self, a: Value, b: Value) -> None:
        mine = while_parts(a.equation, list(a.reads))
        other = while_parts(b.equation, list(b.reads))
        self._pairs(a, b, mine[2], other[2])
        for part, name in enumerate(("cond_jaxpr", "body_jaxpr")):
            program, other_program = a.params[name], b.params[name]
            self._bodies(a, b, (program, mine[part]), (other_program, other[part]))

    def _cond(self, a: Value, b: Value) -> None:
        my_index, *mine = a.reads
        other_index, *other = b.reads
        self._compare_next(my_index, other_index, a)
        my_branches, other_branches = a.params["branches"], b.params["branches"]
        if len(my_branches) != len(other_branches):
            self._differ(a, b)
        for one, two in zip(my_branches, other_branches, strict=True):
            self._bodies(a, b, (one, mine), (two, other))

    def _solve(self, a: Value, b: Value) -> None:
        """Compare two `custom_linear_solve` by their `solve` programs; the other programs serve
        derivatives, which are traced by now.
        """
        mine, my_right_sides = solve_parts(a)
        other, other_right_sides = solve_parts(b)
        self._pairs(a, b, my_right_sides, other_right_sides)
        program, other_program = a.params["jaxprs"].solve, b.params["jaxprs"].solve
        self._bodies(a, b, (program, mine), (other_program, other))

    def _compare_fori_loop(
        self,
        a: Value,
        b: Value,
    ) -> None:
        """Compare a `fori_loop`, which JAX lowers to a `while` where the bound is a symbol, and to
        a `scan` where it is a number.
        """
        # The carry of the `while` is (counter, bound, ...), that of the `scan` (counter, ...).
        of_condition, of_body, start = while_parts(a.equation, list(a.reads))
        constants, carry, xs = scan_parts(b.equation, list(b.reads))
        keys = [object() for _ in start]
        condition = body_graph(a, a.params["cond_jaxpr"], of_condition, keys).outs[0]
        body = body_graph(
            a,
            a.params["body_jaxpr"],
            of_body,
            keys,
        )
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
        rounds = -1
        if counts and known:
            rounds = int(self._known(last)) - int(self._known(first))
        index = a.index - (a.index > 1)
        if (
            b.params["length"] != max(rounds, 0)
            or rounds < 0
            or a.index == 1
            or index != b.index
            or len(start) != len(carry) + 1
        ):
            self._differ(a, b)
        if self._visit(a.reads, b.reads):
            self._pairs(a, b, [first, *start[2:]], carry)
            counter, _, *others = keys
            other = body_graph(
                b,
                b.params["jaxpr"],
                constants,
                [counter, *others],
            )
            without_bound = (body.outs[0], *body.outs[2:])
            mine = Graph(without_bound, body.effects)
            self._graphs(mine, other, a, b)

    @property
    def _size(self) -> str:
        return f"size {' and '.join(map(str, self.sizes.values()))}"

    def _differ(
        self,
        *values: Value,
        what: str | None = None,
    ) -> NoReturn:
        places = [place_of(value) for value in values]
        if self._at is not None:
            places.append(place_of(self._at))
        place = next(filter(None, places), "")
        raise AsksForSize(place, what or f"does other operations at {self._size}")
