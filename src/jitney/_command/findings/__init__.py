"""What changes would save, kind by kind. `lines.py` sees what the rest is found in, beside what JAX
says.
"""
