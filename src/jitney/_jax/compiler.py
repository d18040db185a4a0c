"""Options for XLA's compiler where compile time matters more than run time."""

from __future__ import annotations

from typing import Any, Final

# Both names are accepted from jax 0.10.2 to 0.12.0.1 on CPU and ignored where they do not apply.
# The passes that they skip run after memory is assigned, so `memory_analysis()` counts the same
# bytes.
FAST: Final[tuple[tuple[str, Any], ...]] = (
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)
