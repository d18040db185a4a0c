"""Objects that users hold: programs, derivatives, states."""
