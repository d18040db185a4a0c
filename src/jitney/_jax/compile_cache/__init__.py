"""JAX's persistent compilation cache: its switch, its folder, what lies there, and how much."""
