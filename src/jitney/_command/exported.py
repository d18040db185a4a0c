"""`show`: contents of a file written by `f.export(...)`; nothing in it is imported or run."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .._export.container import read
from .._export.loading.loaded import Loaded
from .._export.values import find_nothing


def carry_out(given: argparse.Namespace) -> int:
    """Print the contract, plans, sizes and versions in the file, as text or as JSON."""
    path = Path(given.file)
    loaded = Loaded(path, read(path), find_nothing)
    if given.json:
        sys.stdout.write(json.dumps(loaded.to_dict(), indent=1) + "\n")
    else:
        sys.stdout.write(f"{loaded}\n\n{loaded.plan}\n")
    return 0
