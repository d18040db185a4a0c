"""What a body does along its named axes: proven on a program with symbolic sizes, and carried out on padded ones."""
