"""What one asks of a program by compiling it: ways through memory, communication, precision."""
