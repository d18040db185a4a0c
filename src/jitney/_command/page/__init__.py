"""HTML page of a run, from the data of `RunReport.to_dict`.

`whole.py` puts the page together. The other files read and draw a part each: `flame.py`,
`axis_sizes.py`, `memory.py`, and `style.py` has CSS and JavaScript. `decorated.py` runs earlier, in
the user's program: it collects plans, sizes and memory for the data.
"""

from .whole import page as page
