"""A stream from a file, for `python -m jitney stream config.toml`.

- `keys.py` has every key of the file, and prints the template.
- `config.py` reads the file and checks it key by key; a wrong line is named with its number.
- `command.py` finds the function, opens the files of its arguments, runs the stream, stops at
  Ctrl-C or SIGTERM with a checkpoint, and writes the result.
"""
