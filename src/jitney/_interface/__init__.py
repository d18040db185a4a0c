"""What the user holds: programs, derivatives, states."""
