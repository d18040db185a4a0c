"""The models that the example solves, a file each."""
