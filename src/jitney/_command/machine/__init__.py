"""What the machine is and does: `python -m jitney doctor`, one check a line, and `monitor`."""
