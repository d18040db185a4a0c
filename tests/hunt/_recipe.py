"""What a line of a program may be: a text with places for operands, the dtypes it takes, and how
exact its results are.

Places, in braces: `x` any array, `y` and `z` arrays of its shape and dtype, `v` and `u` of shape
(n,), `m` of (n, 3), `t` of (3, n), `q` of (n, n), `w` of (3,), `s` of (), `i` integers of (n,), `j`
integers of (3,), `b` booleans of (n,), `A` an axis of `x`, `K` a small integer, `C` a small float,
`P` a size or arithmetic with it, `T` a dtype, `F` another line, of `e`: see `inner`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

SIGNED = ("int4", "int8", "int16", "int32", "int64")
UNSIGNED = ("uint4", "uint8", "uint16", "uint32", "uint64")
EIGHT = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")
WIDE = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
INTS, FLOATS = SIGNED + UNSIGNED, EIGHT + WIDE
CLASSES = {
    "any": ("bool", *INTS, *FLOATS, *COMPLEX),
    "num": (*INTS, *FLOATS, *COMPLEX),
    "real": (*INTS, *FLOATS),
    "ordered": ("bool", *INTS, *FLOATS),
    "int": INTS,
    "bits": ("bool", *INTS),
    "bool": ("bool",),
    "float": FLOATS,
    "wide": WIDE,
    "inexact": (*FLOATS, *COMPLEX),
    "complex": COMPLEX,
    "solve": ("float32", "float64", *COMPLEX),
    "unsigned": UNSIGNED,
}
Exact = Literal["bits", "close", "loose"]
PLACE = re.compile(r"\{(\w)\}")


@dataclass(frozen=True)
class Recipe:
    """One line.

    Args:
        text: The expression.
        takes: A class of dtypes, of the first operand.
        exact: "bits" where each element stands alone, so that results are equal to the bit; "loose"
            where rounding grows.
        inner: What `e` is of `x`: "same", "row" (without its first axis), "column" (without its
            second), "element".
    """

    text: str
    takes: str = "any"
    exact: Exact = "close"
    inner: str = ""

    @property
    def names(self) -> frozenset[str]:
        """The functions of JAX that it calls."""
        return frozenset(re.findall(r"\b(?:jnp|lax|jax)(?:\.[a-z_]\w*)+", self.text))


def each(pattern: str, names: str, takes: str = "any", exact: Exact = "close") -> Iterable[Recipe]:
    """A recipe for each name, which stands for `_` in the pattern."""
    return (
        Recipe(re.sub(r"(?<=\.)_(?=\()", name, pattern), takes, exact) for name in names.split()
    )


def lines(
    text: str, takes: str = "any", exact: Exact = "close", inner: str = ""
) -> Iterable[Recipe]:
    """A recipe for each line."""
    return (Recipe(line.strip(), takes, exact, inner) for line in text.strip().splitlines())
