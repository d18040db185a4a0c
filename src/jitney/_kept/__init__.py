"""Programs kept for other processes: which, where, and how one is found again."""
