"""Names of the arguments that a derivative is with respect to, as users write them in `wrt` and
`skip`.
"""

from __future__ import annotations

from ..._body.function import FunctionInfo
from ..._errors import OptionError, Where
from ..._stages.derivatives.arguments import unknown_name


def argument_names(
    where: Where | str,
    option: str,
    value: object,
) -> tuple[tuple[str, ...], bool]:
    """Return the names of arguments that the user gave, and whether it was a single name.

    Raises:
        OptionError: The value is neither a name nor several.
    """
    if isinstance(value, str) and value:
        return (value,), True
    if (
        isinstance(value, (tuple, list))
        and value
        and all(isinstance(name, str) for name in value)
        and len(set(value)) == len(value)
    ):
        return tuple(value), False
    raise OptionError(
        where,
        f"{option}={value!r} does not name arguments.",
        f"`{option}` takes a name, or several different ones.",
        f'write {option}="x" or {option}=("x", "z").',
        code="J207",
    )


def check_names(
    where: Where | str,
    names: tuple[str, ...],
    core: FunctionInfo,
) -> None:
    """Check that these are arguments that can vary.

    Raises:
        DerivativeError: An argument does not exist.
        OptionError: An argument is static.
    """
    known = [parameter.name for parameter in core.binder.parameters]
    for name in names:
        if name not in known:
            raise unknown_name(where, name, known)
        if name in core.options.static:
            raise OptionError(
                where,
                f"{name!r} is static.",
                "A derivative is with respect to what is traced.",
                "leave it out of `static`, or out of `wrt`.",
                code="J207",
            )
