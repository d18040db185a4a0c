"""Programs that are made from traces at known sizes, and what judges them."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_UNIFY = "tests/axes/test_unify_traces.py::test_"
_LOOKS = f"{_UNIFY}python_that_looks_at_sizes_is_padded"
_WRONG = f"{_UNIFY}a_program_that_is_wrong_at_a_size_is_not_used_there"

MUTATIONS = [
    Mutation(
        "numbers of the first size serve all sizes",
        "src/jitney/_axes/symbolic/symbolic_trace.py",
        "fill_up(numbers[variable], at(",
        "fill_up(self.numbers[variable], at(",
        (f"{_LOOKS}[NumPy]",),
    ),
    Mutation(
        "a program from traces at known sizes is believed",
        "src/jitney/_axes/symbolic/symbolic_trace.py",
        "        witness.compare(self.jaxpr, expand_closed(exact) if self.is_expanded else exact)",
        "        if not self.is_expanded:\n            witness.compare(self.jaxpr, exact)",
        (f"{_WRONG}[a branch for one size]",),
    ),
    Mutation(
        "an array that begins with equal numbers has equal numbers",
        "src/jitney/_axes/unified/unify_numbers.py",
        "all(equal_bits(row, np.repeat(first, len(row))) for row in rows)",
        "all(equal_bits(row[:1], first) for row in rows)",
        (f"{_LOOKS}[NumPy]",),
    ),
    Mutation(
        "functions that are made anew at each size are the same",
        "src/jitney/_axes/unified/unify_numbers.py",
        "        if equal:\n",
        "        if equal or callable(first):\n",
        (
            f"{_UNIFY}a_callback_that_holds_a_size_is_not_that_of_another_size",
            f"{_UNIFY}a_message_with_a_size_in_it_is_not_that_of_another_size",
        ),
    ),
    Mutation(
        "a check tells the size of the first trace",
        "src/jitney/_axes/unified/unify_numbers.py",
        "if not is_same(map(messages_of, eqns)):",
        "if False:",
        (f"{_UNIFY}a_check_whose_message_tells_a_size_is_refused",),
    ),
    Mutation(
        "primitives of other packages are not expanded",
        "src/jitney/_axes/unified/unify_traces.py",
        "if not any(map(is_closed, equations(jaxpr))):",
        "if True:",
        (f"{_UNIFY}linear_solves_along_the_axis[value-tridiagonal]",),
    ),
    Mutation(
        "positions that Python computed are moves that differ",
        "src/jitney/_axes/witness/compare_traces.py",
        "            elif below.base is a and not a.is_known:\n",
        "            elif False:\n",
        (f"{_LOOKS}[a shuffle of NumPy's]",),
    ),
    Mutation(
        "each chunk reads the first rows of an array that Python computed",
        "src/jitney/_axes/rules/shape.py",
        "x = lax.dynamic_slice_in_dim(x, at.first, at.length, axis)",
        "x = lax.dynamic_slice_in_dim(x, np.int32(start), at.length, axis)",
        (f"{_UNIFY}chunks_and_streams_read_their_part_of_what_python_computes[a window]",),
    ),
    Mutation(
        "a callback may hold a size",
        "src/jitney/_axes/witness/operation_parts.py",
        "    return _contents(value.params.get(name))",
        "    return name",
        ("tests/axes/test_callbacks_with_sizes.py::test_each_size_has_its_own[compared]",),
    ),
]
