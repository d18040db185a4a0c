"""Entry point of `python -m jitney`, the command line; see `_command/arguments.py`."""

import sys

from ._command.arguments import main

if __name__ == "__main__":
    sys.exit(main())
