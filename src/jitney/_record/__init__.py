"""What a trace can read, as one digest, and what it ran, so that nothing is missing from it."""
