"""Ladders of buckets."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitney import Bucket
from tests._examples import examples

LADDERS = st.one_of(
    st.just(Bucket(ladder="pow2")),
    st.just(Bucket(ladder="aligned")),
    st.integers(1, 300).map(lambda multiple: Bucket(multiple=multiple)),
    st.lists(st.integers(1, 5000), min_size=1, max_size=8).map(Bucket),
)
BY_HAND = (
    Bucket(ladder="pow2"),
    Bucket(ladder="aligned"),
    Bucket(multiple=1),
    Bucket(multiple=128),
    Bucket([1]),
    Bucket([5000, 5, 64]),
)
SIZES = (0, 1, 2, 5, 6, 64, 65, 128, 129, 5000, 5001)
DIVIDED = [*itertools.product(BY_HAND, SIZES[1::2], (1, 3, 64))]


@given(bucket=LADDERS, size=st.integers(0, 6000))
@examples(*({"bucket": bucket, "size": size} for bucket in BY_HAND for size in SIZES))
def test_a_size_lies_in_its_range_and_shares_it(bucket, size):
    """Every size of a range has that range, and the range's last size is the bucket."""
    found = bucket.range(size)
    if found is None:
        assert size < 2 or (bucket.sizes is not None and size > max(bucket.sizes))
        return
    low, high = found
    assert 2 <= low <= size <= high
    assert bucket.range(low) == bucket.range(high) == found


@given(bucket=LADDERS, size=st.integers(0, 6000), divisor=st.integers(1, 70))
@examples(*({"bucket": bucket, "size": size, "divisor": n} for bucket, size, n in DIVIDED))
def test_buckets_that_divide(bucket, size, divisor):
    """Rounded up to a multiple, a bucket is still shared by all sizes of its range, and by its
    own.
    """
    found = bucket.range(size, divisor)
    if found is None:
        assert size < 2 or (bucket.sizes is not None and size > max(bucket.sizes))
        return
    low, high = found
    assert high % divisor == 0
    assert 2 <= low <= size <= high
    assert bucket.range(low, divisor) == bucket.range(high, divisor) == found
    assert low == 2 or bucket.range(low - 1, divisor)[1] < low


@pytest.mark.parametrize(
    ("bucket", "size", "expected"),
    [
        (Bucket(ladder="pow2"), 100, (65, 128)),
        (Bucket(ladder="pow2"), 128, (65, 128)),
        (Bucket(ladder="pow2"), 2, (2, 2)),
        (Bucket(multiple=128), 129, (129, 256)),
        (Bucket([64, 10]), 11, (11, 64)),
        (Bucket([64, 10]), 65, None),
        (Bucket(ladder="aligned"), 1, None),
        (Bucket(ladder="aligned"), 3, (2, 128)),
        (Bucket(ladder="aligned"), 400, (385, 512)),
        (Bucket(ladder="aligned"), 600, (513, 768)),
        (Bucket(ladder="aligned"), 769, (769, 1024)),
    ],
)
def test_ranges(bucket, size, expected):
    """From the least size to the bucket itself."""
    assert bucket.range(size) == expected


def test_thousand_sizes_need_few_powers_of_two():
    """Sizes up to 100,000 share 17 buckets."""
    assert len({Bucket(ladder="pow2").range(size) for size in range(2, 100_001)}) == 17


@given(sizes=st.lists(st.integers(2, 2000), min_size=1, max_size=60), waste=st.floats(0, 1))
@examples(
    {"sizes": [2], "waste": 0.0},
    {"sizes": [2, 2, 2], "waste": 1.0},
    {"sizes": [2, 4, 2000], "waste": 1.0},
    {"sizes": [2000, 3, 7, 3], "waste": 0.0},
    {"sizes": [10, 11, 12, 100, 110, 111], "waste": 0.1},  # 11 and 110 are just within a tenth
    {"sizes": [999, 1000, 1001], "waste": 1e-9},
    {"sizes": list(range(2, 62)), "waste": 0.0},
    {"sizes": list(range(2000, 1940, -1)), "waste": 0.01},
    {"sizes": [2**n for n in range(1, 11)], "waste": 0.999},
)
def test_fit_wastes_no_more_than_asked(sizes, waste):
    """No size seen is padded by more than the part, none is left out, and a bucket is a size that
    was seen.
    """
    bucket = Bucket.fit(sizes, waste)
    for size in sizes:
        assert bucket.range(size)[1] <= size * (1 + waste) + 1e-9
    assert set(bucket.sizes) <= set(sizes)


def test_fit_takes_the_fewest():
    """One bucket can hold 100 to 110, and 91 to 99 need another."""
    assert Bucket.fit([91, 95, 100, 105, 110], waste=0.1).sizes == (95, 110)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"sizes": []},
        {"sizes": [0]},
        {"sizes": [2.5]},
        {"multiple": 0},
        {"multiple": 4, "ladder": "pow2"},
        {"ladder": "pow3"},
    ],
)
def test_what_is_no_ladder_is_refused(wrong):
    """With a sentence."""
    with pytest.raises(ValueError, match=r"Bucket|ladder"):
        Bucket(**wrong)


def test_buckets_are_values():
    """Equal ones share programs; the text rebuilds one."""
    assert Bucket([4, 2]) == Bucket((2, 4)) == eval(repr(Bucket([2, 4])))
    assert hash(Bucket(multiple=8)) == hash(Bucket(multiple=8))
