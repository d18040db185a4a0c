"""The machine and its speed: `python -m jitney doctor`, one check a line, and `monitor`."""
