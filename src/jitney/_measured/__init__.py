"""Timing of calls: comparison of two functions, speed tests, and profiles.

    print(jitney.measure(f, x, against=g))  # "faster by 1.2 to 1.25 times", with quartiles

`measure.py` runs these steps: `arguments.py` puts arrays on the device, `checked_results.py`
compares the results of the first calls, `rounds.py` times warm calls in turn, A B B A, and
`verdict.py` turns the ratios of each round into a verdict by the sign test. `checked_results.py`
also finds functions whose result is a constant, `arguments.py` moves a call to another device, for
`devices=`, and `verdict.py` has the same for tests, with a bound to prove.

    with jitney.profile("traces") as p: f(x)

`annotations.py` names the calls in JAX's trace, `trace_file.py` reads the file,
`profile_figures.py` sums the seconds, `perfetto.py` adds rows for stages and named axes, and
`profile.py` is the driver of the four.
"""
