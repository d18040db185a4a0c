"""The `@shared` decorator: one intermediate computation for all functions that use it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from .._owners import public
from .._signature.options import Names
from .._signature.renamed import with_present_names
from .optimize import optimize

if TYPE_CHECKING:
    from .program import Program

P = ParamSpec("P")
R = TypeVar("R")


@overload
def shared(fn: Callable[P, R], /) -> Program[P, R]: ...
@overload
def shared(
    *,
    static: Names | None = None,
    remat: bool | str | Callable[..., object] = False,
    contracts: bool = True,
) -> Callable[[Callable[P, R]], Program[P, R]]: ...
@overload
def shared(
    fn: Callable[P, R],
    /,
    *,
    static: Names | None = None,
    remat: bool | str | Callable[..., object] = False,
    contracts: bool = True,
) -> Program[P, R]: ...
@public
def shared(
    fn: Callable[P, R] | None = None,
    /,
    *,
    static: Names | None = None,
    remat: bool | str | Callable[..., object] = False,
    contracts: bool | None = None,
    check: bool | None = None,
) -> object:
    """Declare an intermediate computation that several functions use: traced once, differentiated
    once, and chained.

    Inside other programs a call of it is a call to one sub-program. For each set of shapes its body
    is traced once, whichever functions use it; its derivative is traced once, and chained with what
    each function does with the result. XLA merges calls with the same arguments in one compiled
    program, and may recompute a value that is cheaper to compute than to store. Called on its own,
    it is a program like any other of `@optimize`.

    Args:
        fn: A function or method.
        static: As for `optimize`.
        remat: As for `optimize`.
        contracts: As for `optimize`.
        check: Name of `contracts` before version 0.3.0.

    Returns:
        A `Program`. Options of `optimize` that belong to the outermost program (`donate`, `pad`,
        `chunk`, ...) are not accepted.

    Raises:
        OptionError: An option is malformed, or contradicts the signature.
    """
    given = {"static": static, "remat": remat, "contracts": contracts, "check": check}
    options: Any = with_present_names(
        "shared()", {name: value for name, value in given.items() if value is not None}
    )
    return functools.partial(shared, **options) if fn is None else optimize(fn, **options)
