"""Types of the data that reports, plans and statistics go into JSON as.

    {"program": "step", "calls": 3, "axes": [{"name": "n", "sizes": [5, 6]}]}

Python has no type for "whatever JSON holds" that one could index without asking at each step, so
the values of a record are unknown to the checker; its keys are what the page of the command says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Record = Mapping[str, Any]
"""A record that is read."""
Data = dict[str, Any]
"""A record that is built."""
