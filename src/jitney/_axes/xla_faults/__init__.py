"""Ways round faults of XLA that padded and chunked evaluation would run into.

    clamped_starts.py       slices of slices are merged, and the sum of their starts is clamped
    overlapping_updates.py  an update of an array by a moved part of itself is written in place
    partitioner_fixes.py    sharded extremes lose a NaN, and narrow positions of shards wrap
    lost_nans.py            maxima and minima of large arrays lose a NaN
    library_fusions.py      operations beside such a reduction do, and narrow integers saturate
    low_bits.py             moving 8- and 16-bit floats changes NaNs

Each file names the issue or the versions that it was tried with: without the fault it can go.
"""
