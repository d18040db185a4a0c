"""What operations carry from chunk to chunk, where their axis is cut: one class for each way on.

    Fold          reduce_sum    the sum so far
    Prefix        cumsum        the last result, from which the next chunk goes on
    ArgExtreme    argmax        index and value of the extreme element
    TopK          top_k         the largest elements and their indices
    Gather        x[i]          the elements at given positions, as far as chunks hold them
    ScatterInto   x.at[i].add   the array that each chunk is scattered into
    LoopCarry     scan          the carry of a loop along the axis

A rule names its carrier (`rules/`); `chunks/` begins it, takes one step a chunk, and finishes it.
"""
