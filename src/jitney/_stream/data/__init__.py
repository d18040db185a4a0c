"""Data of a stream: where rows come from, and how a chunk of them is read."""
