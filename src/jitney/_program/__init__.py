"""From the key of a call to what runs."""
