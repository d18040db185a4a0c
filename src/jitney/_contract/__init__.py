"""Whether a value is what its annotation says: kinds, sizes, and the comparison of a whole call."""
