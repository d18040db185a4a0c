"""What XLA makes of programs: options of its compiler, texts of compiled programs and their costs,
memory that it plans, exported programs, and LAPACK.
"""
