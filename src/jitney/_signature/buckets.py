"""Buckets: the sizes that an axis is padded to, so that many sizes share few programs.

Those that pad the fewest elements, for sizes that are known, are found by dynamic programming over
their histogram.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._errors import OptionError
from .._jax.trees import is_number, is_whole
from .._jax.typed import NumPyArray
from .._owners import public
from .._public import public_in

_WHERE = "jitney.Bucket()"

POW2 = "pow2"
AUTO = "auto"
LADDERS = (POW2, "aligned", AUTO)
_AUTO_COUNT = 8
LANES = 128
"""Axis sizes that are multiples of 128 suit the matrix units of TPUs and GPUs."""


@public_in("jitney")
@dataclass(frozen=True)
class Bucket:
    """Sizes that an axis is padded to. Sizes 0 and 1, and sizes above the last bucket, run
    unpadded.

    Args:
        sizes: The buckets as a list of sizes: `Bucket(sizes=[64, 256, 1000])`.
        multiple: A bucket at each multiple: `Bucket(multiple=128)`.
        ladder: `"pow2"`, the powers of two; `"aligned"`, multiples of 128 in steps of at most a
            half, which suit TPUs and GPUs; or `"auto"`: the first call with rows of unlike lengths
            chooses the buckets that add the fewest elements to its rows. Longer rows, and arrays in
            which all rows have one length, are padded to powers of two.
        count: How many buckets `"auto"` may choose; 8 if it is left out.

    Raises:
        OptionError: Not exactly one argument is given, or a size is not above 0.
    """

    sizes: tuple[int, ...] | None = None
    multiple: int | None = None
    ladder: str | None = None
    count: int | None = None
    # Whether sizes above the last of `sizes` have buckets, the powers of two.
    is_open: bool = False

    @public
    def __init__(
        self,
        sizes: Iterable[int] | None = None,
        *,
        multiple: int | None = None,
        ladder: str | None = None,
        count: int | None = None,
    ):
        given = sum(part is not None for part in (sizes, multiple, ladder))
        if given != 1:
            raise OptionError(
                _WHERE,
                f"{given} of sizes, multiple and ladder are given.",
                "A Bucket takes one of them.",
                "write jitney.Bucket(sizes=[64, 256]), Bucket(multiple=128) or"
                " Bucket(ladder='pow2').",
                code="J220",
            )
        numbers = () if multiple is None else (multiple,)
        if sizes is not None:
            numbers = _items(sizes)
        is_empty = sizes is not None and not numbers
        if numbers is None or is_empty or not all(is_whole(n) and n > 0 for n in numbers):
            if multiple is not None:
                what = f"{multiple!r} is not a size"
            elif numbers is None:
                what = f"{sizes!r} is not a list of sizes"
            else:
                what = f"{sizes!r} are not sizes"
            raise OptionError(
                _WHERE,
                f"{what} above 0.",
                "A bucket is as long as a size, an int above 0.",
                "write jitney.Bucket(sizes=[64, 256]).",
                code="J220",
            )
        if not isinstance(ladder, (str, type(None))) or ladder not in (None, *LADDERS):
            what = f"ladder={ladder!r} is neither 'pow2' nor 'aligned' nor 'auto'."
            raise OptionError(
                _WHERE,
                what,
                "These are the ladders.",
                "write jitney.Bucket(ladder='pow2').",
                code="J220",
            )
        if count is not None and (ladder != AUTO or not is_whole(count) or count < 1):
            raise OptionError(
                _WHERE,
                f"{count=}, {ladder=}.",
                "The ladder 'auto' has a number of buckets, an int above 0.",
                "write jitney.Bucket(ladder='auto', count=8).",
                code="J220",
            )

        # The class is frozen, so its normalised fields are set past its own `__setattr__`.
        chosen = None if sizes is None else tuple(sorted({int(size) for size in numbers}))
        multiple = None if multiple is None else int(multiple)
        object.__setattr__(self, "sizes", chosen)
        object.__setattr__(self, "multiple", multiple)
        object.__setattr__(self, "ladder", ladder)
        object.__setattr__(self, "count", None if count is None else int(count))
        object.__setattr__(self, "is_open", False)

    @classmethod
    @public
    def fit(
        cls,
        sizes: Iterable[int],
        waste: float = 0.1,
        *,
        count: int | None = None,
    ) -> Bucket:
        """The fewest buckets that pad each of these sizes by at most the fraction `waste`; or, with
        `count`, so many buckets that add the fewest elements in all.

        Args:
            sizes: Sizes seen; one that was seen twice counts twice with `count`.
            waste: The largest padding as a fraction of the size: 0.1 pads 1,000 to 1,100 at most.
            count: How many buckets there may be. With more than 512 different sizes, 512 of
                them are considered as the end of a bucket.

        Raises:
            OptionError: There is no size above 1, `waste` is negative, or `count` is below 1.
        """
        given = list(sizes) if isinstance(sizes, Iterable) else []
        seen = Counter(int(size) for size in given if is_whole(size) and size > 1)
        left = sorted(seen)
        is_count = count is None or (is_whole(count) and count > 0)
        is_waste = is_number(waste) and waste >= 0
        if not (left and all(map(is_whole, given)) and is_waste and is_count):
            raise OptionError(
                "jitney.Bucket.fit()",
                f"{sizes=}, {waste=}, {count=}.",
                "It takes sizes above 1, and a waste of 0 or more or a count above 0.",
                "pass the sizes that were seen: Bucket.fit([90, 100, 250], waste=0.1).",
                code="J220",
            )
        if count is not None:
            return cls(optimal_buckets(seen, int(count)))

        # Greedy from the top: the largest size left needs a bucket of its own size, and that bucket
        # serves every size that it does not pad too much.
        buckets: list[int] = []
        while left:
            buckets.append(left[-1])
            left = [size for size in left if size * (1 + waste) < buckets[-1]]
        return cls(buckets)

    def chosen(self, counts: Mapping[int, int]) -> Bucket:
        """The buckets that the ladder `"auto"` stands for, given how often each size occurs.

        The last one is rounded up by a sixteenth at most, so that rows a little longer fit too.
        """
        sizes = {size: times for size, times in counts.items() if size > 1}
        if not sizes:
            return Bucket(ladder=POW2)
        *others, last = optimal_buckets(sizes, self.count or _AUTO_COUNT)
        step = 1 << max(0, last.bit_length() - 5)
        bucket = Bucket([*others, -(-last // step) * step])
        object.__setattr__(bucket, "is_open", True)
        return bucket

    def range(
        self,
        size: int,
        divisor: int = 1,
    ) -> tuple[int, int] | None:
        """Sizes that share a bucket with this one, from the smallest to the bucket itself; None if
        the size runs unpadded.

        Args:
            size: Size of the axis in a call.
            divisor: Number of devices that share the axis. Each bucket is rounded up to a multiple
                of it.
        """
        if size < 2:
            return None
        if divisor == 1:
            low, high = self._size_bounds(size)
            return None if high is None else (max(low, 2), high)

        # Rounding may make buckets equal, and lift smaller ones to `size` or above. Walk down to
        # the smallest rounded bucket that still holds `size`; the range begins above the next one
        # below it.
        above = None

        for bucket in self._down_from(size):
            rounded = -(-bucket // divisor) * divisor
            if above is not None and rounded < above:
                if rounded < size:
                    return max(rounded + 1, 2), above
            elif rounded < size:
                return None
            above = rounded

        return None if above is None else (2, above)

    def nearest(self, size: int) -> int:
        """The size nearest to this one that has a bucket."""
        if size < 2:
            return 2
        return size if self.range(size) else next(self._down_from(size), 2)

    def _down_from(self, size: int) -> Iterator[int]:
        """Buckets in descending order, from the bucket of this size."""
        low, high = self._size_bounds(size)
        if high is not None:
            yield high
        # Sizes 0 and 1 run unpadded.
        while low > 2:
            low, high = self._size_bounds(low - 1)
            if high is not None:
                yield high

    def _size_bounds(self, size: int) -> tuple[int, int | None]:
        if self.multiple is not None:
            high = -(-size // self.multiple) * self.multiple
            return high - self.multiple + 1, high
        if self.ladder in (POW2, AUTO):
            return _power_of_two(size)
        steps = self.sizes if self.sizes is not None else _lane_ladder(size)
        at = bisect_left(steps, size)
        low = steps[at - 1] + 1 if at else 2
        if at < len(steps):
            return low, steps[at]
        if not self.is_open:
            return low, None
        above, high = _power_of_two(size)
        return max(low, above), high

    def __repr__(self) -> str:
        given = {
            "sizes": self.sizes and list(self.sizes),
            "multiple": self.multiple,
            "ladder": self.ladder,
            "count": self.count,
        }
        written = [f"{name}={value!r}" for name, value in given.items() if value is not None]
        return f"Bucket({', '.join(written)})"


def _power_of_two(size: int) -> tuple[int, int]:
    """The bucket of a size from 2 on: the sizes above half a power of two, up to it."""
    high = 1 << (size - 1).bit_length()
    return high // 2 + 1, high


def _items(sizes: object) -> tuple[Any, ...] | None:
    """Items of a list of sizes; None for a text, a number, or an array without axes."""
    if not isinstance(sizes, Iterable) or isinstance(sizes, (str, bytes)):
        return None
    return tuple(sizes) if getattr(sizes, "ndim", 1) > 0 else None


def _lane_ladder(size: int) -> tuple[int, ...]:
    """Ladder 128, 256, 384, 512, 768, 1024, 1536, ... up to the first step that holds `size`."""
    steps = [LANES]
    step = 2 * LANES
    while steps[-1] < size:
        steps += [step, step // 2 * 3]
        step *= 2
    return tuple(steps)


_MOST = 512
"""Sizes that may be the end of a bucket; of more, this many at equal shares of the elements."""


def optimal_buckets(
    counts: Mapping[int, int],
    most: int,
) -> tuple[int, ...]:
    """The buckets that hold all sizes and add the fewest elements in all, in ascending order.

    Args:
        counts: Size -> how often it occurs, at least one of each.
        most: How many buckets there may be, 1 or more.
    """
    sizes = np.array(sorted(counts), np.int64)
    times = np.array([counts[size] for size in sizes.tolist()], np.int64)
    ends = _candidates(sizes, times)
    buckets = min(most, len(ends))

    # How many rows are at most as long as each candidate; none before the first one.
    up_to = np.concatenate([[0], np.cumsum(times)[ends]])
    lengths = sizes[ends]

    # least[j]: the fewest elements of all rows up to candidate j - 1, with so many buckets.
    least = np.full(len(ends) + 1, np.inf)
    least[0] = 0
    choices: list[NumPyArray] = []
    for _ in range(buckets):
        # Rows behind candidate i, up to j, are as long as j.
        between = up_to[1:, None] - up_to[None, :-1]
        totals = least[None, :-1] + between * lengths[:, None]
        totals[np.triu_indices(len(ends), 1)] = np.inf
        choices.append(totals.argmin(axis=1))
        least = np.concatenate([[np.inf], totals.min(axis=1)])

    chosen: list[int] = []
    j = len(ends)
    for choice in reversed(choices):
        if j == 0:
            break
        chosen.append(int(lengths[j - 1]))
        j = int(choice[j - 1])
    return tuple(reversed(chosen))


def _candidates(
    sizes: NumPyArray,
    times: NumPyArray,
) -> NumPyArray:
    """Positions of the sizes that may be the end of a bucket, the last one among them."""
    if len(sizes) <= _MOST:
        return np.arange(len(sizes))
    shares = np.cumsum(sizes * times)
    at = np.searchsorted(shares, np.linspace(0, shares[-1], _MOST + 1)[1:])
    return np.unique(np.append(at.clip(0, len(sizes) - 1), len(sizes) - 1))
