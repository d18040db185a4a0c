"""What is asked of XLA's compiler where programs are to compile in a short time, whatever they cost
to run.
"""

from __future__ import annotations

from typing import Any, Final

# Both names are accepted from jax 0.10.2 to 0.12.0.1 on CPU and ignored where they do not apply.
# What they leave out comes after the memory
# is laid out, so that `memory_analysis()` counts the same bytes.
FAST: Final[tuple[tuple[str, Any], ...]] = (
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)
