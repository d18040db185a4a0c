"""What jitney gains over what people do today, each measured where it is run: `python -m examples
--only sizes`.

A file measures one gain: what is common today, what a competent author writes by hand, and jitney,
of the same function. Results are compared before anything is timed, and compiling is apart.
"""

NAMES = ("fits", "widths", "sizes", "memory", "jacobian", "starts")

TAKES = {
    "fits": "a thousand fits, in loops and as one call (about 5 s)",
    "widths": "4,096 fits at once, in widths and threads (about 10 s)",
    "sizes": "16 sizes, a compile for each and a program for all (about 8 s)",
    "memory": "a prediction at once and in chunks, a process for each (about 8 s)",
    "jacobian": "2,000 unknowns, dense and sparse (about 2 s)",
    "starts": "the second process, six processes in all (about 20 s)",
}
