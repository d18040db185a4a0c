"""The decorator `@lazy_derivatives`: the defaults that the derivatives of a function share."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args, overload

from ..._errors import OptionError
from ..._owners import public
from ..._signature.binding import around_method
from ..._signature.options import Wrt
from ..._sparsity import Mode
from ..bound import Defaults
from .varying_arguments import argument_names, check_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..program import Program

P = ParamSpec("P")
R = TypeVar("R")


@overload
def lazy_derivatives(fn: Callable[P, R], /) -> Program[P, R]: ...
@overload
def lazy_derivatives(
    *,
    wrt: Wrt = None,
    skip: Wrt = None,
    mode: Mode = "auto",
    sparse: bool = False,
) -> Callable[[Callable[P, R]], Program[P, R]]: ...
@overload
def lazy_derivatives(
    fn: Callable[P, R],
    /,
    *,
    wrt: Wrt = None,
    skip: Wrt = None,
    mode: Mode = "auto",
    sparse: bool = False,
) -> Program[P, R]: ...
@public
def lazy_derivatives(
    fn: object = None,
    /,
    *,
    wrt: Wrt = None,
    skip: Wrt = None,
    mode: Mode = "auto",
    sparse: bool = False,
) -> object:
    """Give a function its derivatives, each traced and compiled when it is first called, with
    common defaults.

    Args:
        fn: A function, or a program of `@optimize`; a plain function is put under `@optimize`
            first.
        wrt: The arguments that vary: one name, for the derivative itself, or several, for dicts by
            name. Without it, all that hold floating-point arrays.
        skip: Arguments that are left out of "all".
        mode: Computation of Jacobians: `"forward"` or `"reverse"`, one pass for each element of the
            arguments or of the results; `"coloured"`, fewer passes by their structure; or `"auto"`,
            the cheapest by their sizes and structure.
        sparse: Whether Jacobians and Hessians are `jax.experimental.sparse.BCOO` arrays instead of
            dense ones.

    Returns:
        A `Program` with `grad`, `value_and_grad`, `jacobian`, `value_and_jacobian`, `hessian`,
        `hessian_diag`, `jvp`, `vjp`, `hvp` and `linearize`.

    Raises:
        DerivativeError: A name is not the name of an argument.
        OptionError: An option is malformed.
    """
    where = "lazy_derivatives()"
    names, single = argument_names(where, "wrt", wrt) if wrt is not None else (None, False)
    left_out = argument_names(where, "skip", skip)[0] if skip is not None else ()
    if not isinstance(mode, str) or mode not in get_args(Mode):
        raise OptionError(
            where,
            f"mode={mode!r} is not a mode.",
            f"`mode` is one of {', '.join(get_args(Mode))}.",
            "choose one.",
            code="J207",
        )
    if type(sparse) is not bool:
        raise OptionError(
            where,
            f"sparse={sparse!r} is neither True nor False.",
            "`sparse` asks for BCOO arrays.",
            "write one.",
            code="J207",
        )
    if names is not None and left_out:
        raise OptionError(
            where,
            "`wrt` and `skip` are both given.",
            "`wrt` names all that varies; `skip` is for where it does not.",
            "keep one.",
            code="J201",
        )

    defaults = Defaults(names, left_out, single, mode, sparse)
    if fn is None:
        return functools.partial(_apply_defaults, defaults=defaults)
    return _apply_defaults(fn, defaults)


@public
def _apply_defaults(fn: Any, defaults: Defaults) -> Any:
    from ..optimize import optimize
    from ..program import Program

    method = around_method(fn, lambda fn: _apply_defaults(fn, defaults))
    if method is not None:
        return method
    program = fn if isinstance(fn, Program) else optimize(fn)
    names = (*(defaults.wrt or ()), *defaults.skip)
    check_names(program.core.where, names, program.core)
    return program.with_defaults(defaults)
