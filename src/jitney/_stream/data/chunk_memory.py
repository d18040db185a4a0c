"""Memory of the chunks of a stream, which is used again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..._jax.typed import DType, NumPyArray

_ALIGNMENT = 64
"""Bytes at a multiple of which XLA takes an array on the CPU as it lies, without a copy."""
_HUGE_PAGE = 2 * 2**20
_CHUNKS = 2
"""Chunks that are there at one time: one that is read, and one whose step is under way."""


class ChunkMemory:
    """Arrays for the chunks of each source, two in turn.

    Memory that was used before has its pages already, and is in the processor's caches if a chunk
    is small.

    Args:
        is_used_again: Whether the memory of a chunk may be overwritten when the step after it is
            done. An outer transform keeps chunks for the derivative, so it is false there.
    """

    def __init__(self, *, is_used_again: bool):
        self._is_used_again = is_used_again
        self._turn = 0
        self._blocks: dict[tuple[int, int], NumPyArray] = {}
        self._piece = np.empty(0, np.uint8)

    def keep_chunks(self) -> None:
        """Overwrite no chunk from now on: somebody holds them."""
        self._is_used_again = False

    def next_chunk(self) -> None:
        """Go on to the memory of the chunk before the last one."""
        self._turn = (self._turn + 1) % _CHUNKS

    def array(
        self,
        source: int,
        shape: Sequence[int],
        dtype: DType,
    ) -> NumPyArray:
        """Array for the chunk of a source; what is in it is not defined."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        place = source, self._turn
        block = self._blocks.get(place)
        if block is None or len(block) < size or not self._is_used_again:
            block = self._blocks[place] = _aligned(size, is_used_again=self._is_used_again)
        return block[:size].view(dtype).reshape(shape)

    def piece(
        self,
        shape: Sequence[int],
        dtype: DType,
    ) -> NumPyArray:
        """Array for rows that are converted into a chunk before the next ones are read."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if len(self._piece) < size:
            self._piece = _aligned(size, is_used_again=True)
        return self._piece[:size].view(dtype).reshape(shape)


def _aligned(
    size: int,
    *,
    is_used_again: bool,
) -> NumPyArray:
    """Bytes that begin at a multiple of 64; or of 2 MiB, if they are used again and fill at least
    half a huge page.

    NumPy asks Linux for huge pages from 4 MiB on, and the system gives those that lie in the block
    as a whole. Each saves 512 faults of a new block.
    """
    alignment, room = _ALIGNMENT, size
    if is_used_again and 2 * size >= _HUGE_PAGE:
        alignment, room = _HUGE_PAGE, -(-size // _HUGE_PAGE) * _HUGE_PAGE
    block = np.empty(room + alignment, np.uint8)
    return block[-block.ctypes.data % alignment :][:size]
