"""The one place where this example takes its compiler from."""

from typing import Final

import jax

from jitney import lazy_derivatives as lazy_derivatives
from jitney import optimize as optimize
from jitney.errors import DerivativeError as DerivativeError

# JAX 0.10 compiles each kernel by MLIR and then by LLVM. Without the first a program of a fit
# takes half the time to compile, and runs as fast. JAX 0.12 is as quick, and lacks the option.
COMPILER: Final = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else None
