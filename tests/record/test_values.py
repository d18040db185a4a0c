"""Two values have one digest only if no code could tell them apart."""

import collections.abc
import gc
import itertools
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

from jitney._record.classes import registered_anywhere
from jitney._record.unsure import NotDeterministic
from jitney._record.values import ContentHasher


def digest(value):
    walk = ContentHasher()
    walk.add(value)
    return walk.digest()


def made(text):
    """A function of this text."""
    space = {"__name__": "somewhere"}
    exec(compile(textwrap.dedent(text), "<somewhere>", "exec"), space)
    return space["f"]


def different():
    plain = [
        0,
        1,
        True,
        1.0,
        0.0,
        -0.0,
        float("nan"),
        1j,
        "1",
        b"1",
        None,
        ...,
        range(1),
        slice(1),
        int,
        float,
        len,
    ]
    held = [
        (1,),
        [1],
        {1},
        frozenset({1}),
        {1: 1},
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        (1, (2,)),
        ((1, 2),),
    ]
    arrays = [
        np.float32(1),
        np.ones(1),
        np.ones(1, np.float32),
        np.ones((1, 1)),
        jnp.ones(1),
        jnp.asarray(1.0),
        jnp.asarray(1),
    ]
    fixed = np.ones(1)
    fixed.flags.writeable = False
    return [
        *plain,
        *held,
        *arrays,
        fixed,
        np.dtype("f4"),
        np.dtype("f8"),
        jnp.sin,
        jnp.cos,
        np.sqrt,
        np.exp,
    ]


def test_values_that_differ_in_anything_have_different_digests():
    """Types, signs, order, shapes, weak types."""
    for (i, first), (j, second) in itertools.combinations(enumerate(different()), 2):
        assert digest(first) != digest(second), (i, j, first, second)


def test_equal_values_have_one_digest():
    """Whoever made them."""
    for first, second in (
        ({"a": [1, 2.5]}, {"a": [1, 2.5]}),
        (np.arange(3), np.arange(3)),
        ({1, 2}, {2, 1}),
    ):
        assert digest(first) == digest(second)


def test_two_names_of_one_list_are_not_two_lists():
    """Code that changes one would change the other."""
    one = [1]
    assert digest([one, one]) != digest([[1], [1]])


def test_positions_comments_and_docstrings_do_not_count():
    """Instructions do."""
    first = made('def f(x):\n    "What it does."\n    return x * 2')
    second = made(
        '# a comment\n\n\ndef f(x):\n    "Says something else."\n\n    return (x *\n            2)'
    )
    third = made('def f(x):\n    "What it does."\n    return x * 3')
    assert digest(first) == digest(second) != digest(third)


def test_a_docstring_that_is_used_counts():
    """It is a constant like any other then."""
    first, second = (
        made(f'def f(x):\n    "{text}"\n    return "{text}"') for text in ("one", "two")
    )
    assert digest(first) != digest(second)


@pytest.mark.parametrize(
    "value", [iter(zip()), open, (i for i in ()), memoryview(b""), type("T", (), {"f": open})]
)
def test_what_cannot_be_told_by_content_is_unsure(value):
    """Never a guess."""
    with pytest.raises(NotDeterministic):
        digest(value)


def test_what_passes_for_a_class_of_python_by_being_registered_is_told():
    """Libraries ask `isinstance(x, Sequence)`; the class that is registered is held weakly."""

    class Rows:
        pass

    before = registered_anywhere()
    collections.abc.Sequence.register(Rows)
    assert len(registered_anywhere()) > len(before)
    del Rows
    gc.collect()
    assert registered_anywhere() == before


@pytest.mark.rest
def test_it_counts_at_which_abstract_class_a_class_was_registered():
    """One that passes for a sequence does not pass for a mapping."""

    class Rows:
        pass

    class Table(collections.abc.Mapping):
        __getitem__ = __iter__ = __len__ = None

    collections.abc.Sequence.register(Rows)
    as_sequence = registered_anywhere()
    del Rows
    gc.collect()

    class Rows:
        pass

    Table.register(Rows)
    as_mapping = registered_anywhere()
    del Rows
    gc.collect()
    assert as_sequence != as_mapping
    assert as_sequence != registered_anywhere() != as_mapping


def test_code_that_reads_the_base_of_a_view_has_what_the_base_holds():
    """Two views of equal elements differ if code reads `base`, whose other elements differ; where
    no code reads it, they are one.
    """

    def reads_of_base(base):
        view = base[::2]

        def body(x):
            return x + view.base.sum()

        return body

    def reads_of_view(base):
        view = base[::2]

        def body(x):
            return x + view.sum()

        return body

    one, other = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 9.0, 2.0, 9.0])
    assert digest(reads_of_base(one)) != digest(reads_of_base(other))
    assert digest(reads_of_view(one)) == digest(reads_of_view(other))
