"""Options for XLA's compiler: those of `compiler="fast"`, and those that the user gives."""

from __future__ import annotations

from typing import Any, Final

CompilerOptions = tuple[tuple[str, Any], ...]
"""Names and values, by name."""

# Both names are accepted from jax 0.10.2 to 0.12.0.1 on CPU and ignored where they do not apply.
# The passes that they skip run after memory is assigned, so `memory_analysis()` counts the same
# bytes.
FAST: Final[CompilerOptions] = (
    ("xla_backend_optimization_level", 0),
    ("xla_llvm_disable_expensive_passes", True),
)


def options_of(compiler: str | CompilerOptions | None) -> CompilerOptions:
    """Return XLA's options for a value of `compiler`; none for "default"."""
    if isinstance(compiler, tuple):
        return compiler
    return FAST if compiler == "fast" else ()
