"""The one place where this example takes its compiler from."""

import equinox as eqx

# STAND-IN until `jitney.optimize` is importable: `from jitney import optimize as optimize`.
optimize = eqx.filter_jit
