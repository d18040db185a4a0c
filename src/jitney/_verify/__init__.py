"""Programs compared with what was written: each new one is also run plainly."""
