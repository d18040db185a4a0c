"""An axis worked on in chunks: the passes of a program over it, and their evaluation."""
