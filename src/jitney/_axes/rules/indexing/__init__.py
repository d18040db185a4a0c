"""Rules of reads and writes at positions.

    x[i], dynamic_slice(x, i, 3)       `gather.py`
    x.at[i].set(y), .add, ...          `scatter.py`
    i beyond the true size             `positions.py`: bounded as XLA does at exact size
    buf[:n], buf.at[:n].set(x)         `fixed_windows.py`: windows of symbolic length of a fixed
                                       axis

Padding is neither read nor written.
"""
