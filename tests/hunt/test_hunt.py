"""The hunt itself: it covers what is public, repeats, tells rounding from faults, and finds faults
that are put in.
"""

import collections
import dataclasses
import functools
import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jitney._axes.monoids import MONOIDS
from jitney._axes.padded import _Finite
from jitney._axes.rule import Rule
from jitney._axes.rules import RULES
from jitney._program.auto.auto_calls import AutoCalls
from tests._arrays import array
from tests._patience import patience
from tests.hunt import _infinite, _looks, _overlaps, _table, looking
from tests.hunt.__main__ import _environment
from tests.hunt._draw import ALL, Case, Writer, drawn
from tests.hunt._hunt import hunt
from tests.hunt._judge import difference, is_overflow, is_unstable, leaves_of
from tests.hunt._narrow import rounded_once
from tests.hunt._recipe import lines
from tests.hunt._report import Report
from tests.hunt._shrink import script, shrunk

CASES, MANY = 12, 2
OVERLAPPING = ("pad", "pad both", "grad+pad", "outer pad", "vmap+pad", "chunk")
F32 = np.float32


def about(start):
    return [recipe for recipe in ALL if recipe.text.startswith(start)]


def fallen(option, among, kind="wrong", first=0):
    """The first finding of a kind in a few cases."""
    for index in range(first, first + CASES):
        for finding in hunt(3, index, [option], among=among, many=MANY).findings:
            if finding.kind == kind:
                return finding
    return None


@pytest.mark.rest
@pytest.mark.parametrize("index", range(4))
def test_no_line_whose_python_looks_at_a_size_gives_another_number(index):
    """Padded and cut, among other lines."""
    score = hunt(42, index, ["pad", "chunk"], among=_looks.RECIPES, many=MANY)
    assert [finding for finding in score.findings if finding.kind in ("wrong", "raw")] == []


@pytest.mark.rest
@pytest.mark.parametrize("index", range(3))
def test_no_update_by_a_part_of_itself_gives_another_number(index):
    """Padded, along two axes, with derivatives, and cut; one such update in each program."""
    score = hunt(42, index, OVERLAPPING, among=_overlaps.RECIPES, many=1)
    assert [finding for finding in score.findings if finding.kind in ("wrong", "raw")] == []


@pytest.mark.rest
@pytest.mark.parametrize("index", range(2))
def test_no_derivative_from_outside_has_another_number(index):
    """Of padded functions whose slopes or factors are infinite."""
    score = hunt(42, index, ["derivatives"], among=_infinite.RECIPES, many=1)
    assert score.findings == []


def test_every_public_function_has_a_line_or_a_reason():
    """Of jax.numpy, jax.lax and jax.nn, of the JAX at hand."""
    assert [name for name in _table.public() if not _table.covered(name)] == []


def is_drawn(recipe):
    """Whether some dtype and some draw make a line of it."""
    for dtype, seed in itertools.product(("float32", "int32", "bool"), range(4)):
        case = Case(0, 0, dtype, "int32", "normal", 7, ())
        with case.numbers():
            if Writer(np.random.default_rng(seed), case, "r").alone(recipe) is not None:
                return True
    return False


@pytest.mark.rest
def test_lines_with_functions_inside_are_drawn():
    """A line that cannot be evaluated is left out in silence; what an inner function reads of the
    operands was once never found.
    """
    unread = [
        recipe.text
        for recipe in ALL
        if "lambda" in recipe.text and "{F}" not in recipe.text and not is_drawn(recipe)
    ]
    assert unread == []


def test_a_seed_and_an_index_name_a_case():
    """The same programs and the same numbers; others for another seed."""
    case, again, other = drawn(7, 3), drawn(7, 3), drawn(8, 3)
    assert [e.program for e in case.expressions] == [e.program for e in again.expressions]
    for name, x in case.arrays(case.n).items():
        np.testing.assert_array_equal(x, again.arrays(case.n)[name])
    assert [e.program for e in case.expressions] != [e.program for e in other.expressions]


def unmasked(rule):
    """A rule that forgets what is valid."""
    return Rule(rule.uses, lambda walk, op, values: walk.bind(op, values, axes=op.params["axes"]))


def misled(name, combine):
    """A monoid that puts its parts together in another way."""

    def put(patch):
        wrong = dataclasses.replace(MONOIDS[name], combine=combine)
        for op, rule in RULES.items():
            if rule.carrier is not None and rule.carrier.monoid is MONOIDS[name]:
                patch.setitem(
                    RULES,
                    op,
                    dataclasses.replace(
                        rule, carrier=dataclasses.replace(rule.carrier, monoid=wrong)
                    ),
                )

    return put


def emptied(patch):
    """A choice that answers with zeros, as soon as it has fallen."""
    run = AutoCalls.run_entry
    zeros = lambda entry, arrays: jax.tree.map(jnp.zeros_like, run(entry, arrays))
    patch.setattr(AutoCalls, "run_entry", staticmethod(zeros))


FAULTS = {
    "a sum over the padding": (
        "pad",
        about("jnp.sum("),
        lambda m: m.setitem(RULES, "reduce_sum", unmasked(RULES["reduce_sum"])),
    ),
    "a maximum that is combined as a minimum": (
        "chunk",
        about("jnp.max("),
        misled("max", jnp.minimum),
    ),
    "a stream that keeps one chunk": ("stream", about("jnp.sum("), misled("add", lambda a, b: b)),
    "a choice that answers with zeros": ("auto", about("jnp.cos("), emptied),
}


@pytest.mark.core("a maximum that is combined as a minimum")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_is_put_in_is_found(name, monkeypatch):
    """Within a few cases, of the operation that has it."""
    option, among, put = FAULTS[name]
    put(monkeypatch)
    assert fallen(option, among) is not None


@pytest.mark.rest
def test_a_fault_is_found_in_a_derivative_under_several_options(monkeypatch):
    """Most of the first cases are of integers or of NaNs; others fall at another size of the bucket
    alone.
    """
    monkeypatch.setitem(RULES, "reduce_sum", unmasked(RULES["reduce_sum"]))
    assert fallen("derivative+pad", about("jnp.sum("), first=18) is not None


@pytest.mark.rest
def test_a_zero_of_padding_that_meets_an_infinity_is_found(monkeypatch):
    """An evaluation of derivatives that no longer clears tangents before infinite factors."""
    monkeypatch.setattr(_Finite, "_cleared", lambda self, op, values, linear: values)
    among = [*lines("({m} * {w}) @ {w}", "wide")]
    monkeypatch.setattr(_infinite, "RECIPES", among)
    assert fallen("derivatives", among) is not None


@pytest.mark.rest
def test_an_error_that_is_not_jitneys_is_found(monkeypatch):
    """A rule that breaks."""

    def broken(walk, op, values):
        raise KeyError("broken")

    monkeypatch.setitem(RULES, "reduce_max", dataclasses.replace(RULES["reduce_max"], pad=broken))
    found = fallen("pad", about("jnp.max("), "raw")
    assert found is not None
    assert "KeyError" in found.what


@pytest.mark.rest
def test_what_falls_is_shrunk_to_a_script_that_stands_alone(monkeypatch):
    """Few lines, a small size; it runs in a process of its own, where there is no fault."""
    monkeypatch.setitem(RULES, "reduce_sum", unmasked(RULES["reduce_sum"]))
    found = fallen("pad", about("jnp.sum("))
    case = drawn(3, found.index, MANY, about("jnp.sum("))
    original = next(e.program for e in case.expressions if e.program.lines == found.program.lines)
    with case.numbers():
        least = shrunk(
            found,
            original,
            {name: case.arrays(found.n)[name] for name, _ in original.takes},
            seconds=5.0,
        )
    assert len(least.program.lines) == 1
    text = script(least)
    subprocess.run(
        [sys.executable, "-c", text],
        check=True,
        env=_environment(None, gpu=False),
        capture_output=True,
        timeout=patience(120),
    )


@pytest.mark.parametrize(
    ("got", "want", "exact", "same"),
    [
        (F32([1, np.nan]), F32([1, np.nan]), "bits", True),
        (F32([0.0]), F32([-0.0]), "bits", False),
        (F32([0.0]), F32([-0.0]), "close", True),
        (F32([np.nan]), F32([1.0]), "close", False),
        (F32([np.inf]), F32([3e38]), "close", False),
        (F32([1.00001]), F32([1.0]), "close", True),
        (F32([1.001]), F32([1.0]), "close", False),
        (np.float64([1.0]), F32([1.0]), "close", False),
        (np.int8([1]), np.int8([2]), "loose", False),
        (array([1.0], jnp.bfloat16), array([1.02], jnp.bfloat16), "close", True),
        (array([0.5], jnp.bfloat16), array([1.0], jnp.bfloat16), "close", False),
        (np.complex64([1 + 2j]), np.complex64([1 - 2j]), "close", False),
        (F32([1.0, 2.0]), F32([1.0]), "close", False),
    ],
)
def test_the_judge(got, want, exact, same):
    """NaNs are equal; the sign of zero is a bit; a type of its own, or another shape, is a
    difference.
    """
    assert (difference(leaves_of([got]), leaves_of([want]), exact) is None) is same


def test_rounding_that_a_program_amplifies_is_no_fault():
    """A sum that cancels moves as far by itself; one that does not, does not."""
    x = np.random.default_rng(0).normal(size=1000).astype(F32)
    x -= x.mean()

    def theirs(arrays):
        return jnp.sum(arrays["x"]), jnp.sum(jnp.abs(arrays["x"]))

    cancelled, plain = leaves_of(theirs({"x": x}))
    moved = [cancelled + F32(1e-6), plain]
    assert is_unstable(theirs, {"x": x}, moved, "bits")
    assert not is_unstable(theirs, {"x": x}, [cancelled, plain * F32(1.01)], "close")


def test_a_sum_of_whole_numbers_that_plain_jax_rounds_is_no_fault():
    """They cannot be moved by a rounding error: ours may be nearer to the sum in 64 bits."""
    x = np.full(40_000, 7, np.uint8)

    def theirs(arrays):
        terms = jnp.asarray(arrays["x"], jnp.result_type(float)) / 3
        return jax.lax.scan(lambda total, term: (total + term, None), terms[0] * 0, terms)[0]

    plain, exact = leaves_of(theirs({"x": x}))[0], F32(40_000 * 7 / 3)
    assert difference([exact], [plain], "close") is not None
    assert is_unstable(theirs, {"x": x}, [exact], "close")
    assert not is_unstable(theirs, {"x": x}, [exact * F32(1.01)], "close")


def test_a_product_that_overflows_in_another_order_is_no_fault():
    """At the end of the range only; a wrong factor is a fault there too."""
    x = np.array([1e30, 1e-30, 1e30, 1e8], F32)

    def product(order, factor=1):
        return lambda arrays: [F32(factor) * functools.reduce(np.multiply, arrays["x"][order])]

    theirs, ours = product([0, 1, 2, 3]), product([0, 2, 1, 3])
    twice = product([0, 2, 1, 3], factor=2)
    with np.errstate(all="ignore"):
        got = ours({"x": x})
        assert np.isinf(got[0])
        assert np.isfinite(theirs({"x": x})[0])
        assert is_overflow(ours, theirs, {"x": x}, got, "close")
        assert not is_overflow(twice, theirs, {"x": x}, twice({"x": x}), "close")
        small = {"x": x / F32(1e8)}
        assert not is_overflow(twice, theirs, small, twice(small), "close")


def test_a_product_of_zero_and_what_overflows_is_no_fault():
    """0 in one order, NaN in the other, and 0 in 64 bits; a NaN that stays there is a fault."""
    x = np.array([0, 1e30, 1e30], F32)

    def product(order, factor=1):
        return lambda arrays: [factor * functools.reduce(np.multiply, arrays["x"][order])]

    theirs, ours = product([0, 1, 2]), product([2, 1, 0])
    spoilt = product([2, 1, 0], factor=F32(np.nan))
    with np.errstate(all="ignore"):
        got = ours({"x": x})
        assert np.isnan(got[0])
        assert theirs({"x": x})[0] == 0
        assert is_overflow(ours, theirs, {"x": x}, got, "loose")
        assert is_overflow(theirs, ours, {"x": x}, theirs({"x": x}), "loose")
        assert not is_overflow(spoilt, theirs, {"x": x}, spoilt({"x": x}), "loose")


def test_sums_of_8_bits_are_judged_by_one_that_is_rounded_once():
    """137 ones: plain XLA for CPUs makes 128; 144 is the nearest number."""
    x = jnp.asarray(np.arange(257) < 137, jnp.float8_e4m3fn)

    def sums(arrays):
        x = arrays["x"]
        looped = lax.scan(lambda c, k: (jnp.sum(x), c), x[0], None, length=2)
        mapped = jax.vmap(lambda e: lax.psum(e, "k"), axis_name="k")(x)
        branch = lax.cond(x[0] > 0, lambda: jnp.sum(x), lambda: x[0])
        return jnp.sum(x), looped[0], mapped[0], branch

    np.testing.assert_array_equal(np.asarray(rounded_once(sums, {"x": x}), F32), 4 * [144])


@pytest.mark.rest
def test_programs_that_look_at_sizes_are_hunted_alone():
    """One of `tests.hunt.looking`, at twenty sizes."""
    block, counts = looking.Block(1, 0), collections.Counter()
    with block.case.numbers():
        rng = np.random.default_rng([1, 4, 3])
        assert not looking.judged(block, block.drawn(rng, 4), rng, counts)
    assert counts["programs"] == 1
    assert counts["sizes"] > 15


def test_the_report_counts_and_names():
    """A line for each option; causes that look alike are told once."""
    report = Report(1)
    finding = {
        "kind": "wrong",
        "option": "pad",
        "what": "1 for 2",
        "index": 0,
        "n": 3,
        "dtype": "int8",
        "lines": ["r0a = x0[0]"],
        "code": "",
        "script": "",
    }
    message = {
        "tried": {"pad": 8},
        "refused": {"pad": 2},
        "unstable": {},
        "reasons": {},
        "findings": [finding, dict(finding, index=1)],
    }
    report.add(message)
    assert not report.is_clean
    assert "2 x wrong under pad" in str(report)
    assert "8 programs, 2 refused" in report.line()
