"""`bench`: what a function costs by the size of its axes."""
