"""Reader of the option `compiler`: an effort by name, or options of XLA by theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from .._errors import OptionError, Where
from .._host.switches import COMPILERS
from .._jax.xla.compiler import CompilerOptions

# They take sums apart, drop NaN or the sign of zero, or pass such options on to LLVM.
_INEXACT = ("fast_math", "fast_min_max", "unsafe", "xla_backend_extra_options")
_VALUES = (bool, int, float, str)


def read_compiler(where: Where | str, value: object) -> str | CompilerOptions | None:
    """Return the value of `compiler`, with options of XLA in the order of their names.

    Raises:
        OptionError: It is neither an effort nor a dict of XLA's options, or one of these lets XLA
            compute other numbers.
    """
    if value is None or (isinstance(value, str) and value in COMPILERS):
        return value
    if not isinstance(value, Mapping):
        raise OptionError(
            where,
            f"compiler={value!r} is not a choice.",
            "`compiler` is one of default, fast, or a dict of XLA's options.",
            "choose one.",
        )
    options = cast("Mapping[str, object]", value)
    for name, option in options.items():
        # A name may be of any type, whatever the annotation says.
        if not str(name).startswith("xla_") or not isinstance(option, _VALUES):
            raise OptionError(
                where,
                f"compiler={{{name!r}: {option!r}}} is not an option of XLA.",
                "The options of XLA have names with `xla_` in front, and values that are a bool, a"
                " number or a text.",
                'write compiler={"xla_backend_optimization_level": 1}, say.',
            )
        if _is_inexact(name, option):
            raise OptionError(
                where,
                f"compiler={{{name!r}: {option!r}}} lets XLA compute other numbers.",
                "With fast-math XLA reorders sums and takes NaN, infinities and the sign of zero"
                " for numbers that do not occur.",
                'leave it out; `precision="bf16"` and its kin have products in fewer bits.',
            )
    return tuple(sorted(options.items())) or "default"


def _is_inexact(name: str, value: object) -> bool:
    """Return whether an option gives up exactness, unless its value is what keeps it."""
    if not any(part in name for part in _INEXACT):
        return False
    keeps = "honor" in name
    return value is not keeps
