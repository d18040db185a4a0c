"""Loops over data around a program: where chunks come from, the steps, the file to go on from."""
