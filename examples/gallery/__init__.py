"""Eight small programs that people recognise, each as one would write it and with one decorator
line.

A file is a script in cells (`# %%`), which notebooks and the page of the documentation are made
from. `plan()` is what jitney says before anything runs, `compare()` asserts equal numbers and
measures both ways, `draw()` makes a picture; all are small unless asked for `full=True`.
"""
