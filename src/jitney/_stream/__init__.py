"""Data larger than memory: `jitney.stream` runs a program chunk by chunk from the host.

Start at `stream.py` (`stream`); the loop is in `stream_run.py`. The files in the order of the data:

- `data/sources.py`: an array, a path or an iterable becomes an object with `shape`, `dtype` and
  slices.
- `stream_layout.py`: the sharding of each chunk and of the carry over the devices of a mesh.
- `schedule.py`: the passes over the chunks as plain data; `steps.py` compiles their steps.
- `chosen_steps.py`: the steps of an earlier run, those that another process serialised
  (`cache="program"`), or new ones for a number of bytes.
- `data/reading.py`: reads the chunks, with checksums and retries.
- `resume.py`: the checkpoint file; `run_key.py` digests the computation for it.
- `verify.py`: compares the result with one plain call.

`accumulate.py` holds `jitney.accumulate`, which cuts a gradient inside one program instead.
"""
