"""Chunked evaluation along one axis: plan passes over the data (`planning.py`), run them
(`chunked.py`, and `in_memory.py` inside of one program).

A value with the axis exists for one chunk at a time, a reduction is accumulated over the chunks. A
program that centres its data needs its sum before it can use it, so it takes two passes:

    { lambda ; a:f32[n]. let
        b:f32[] = reduce_sum a        pass 1: b accumulates over the chunks
        c:f32[n] = sub a b            pass 2: c and d are made per chunk,
        d:f32[n] = mul c c
        e:f32[] = reduce_sum d                e accumulates
      in (e,) }

Order of reading: `numbered.py` (the program as SSA nodes), `cut_axis.py` (one node along the axis),
`partial_results.py` (loops over another axis), `node_uses.py` (which of these a node is),
`levels.py` (when its values can be computed), `planning.py`, `passes.py` (the plan),
`known_values.py`, `chunk_evaluator.py` (a pass on one chunk), `chunked.py` (all passes),
`loop_passes.py` (loops that take passes in each iteration), `in_memory.py`. What an operation
carries from chunk to chunk is in `../carriers/`.
"""
