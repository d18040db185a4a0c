"""States: named arrays as one vector, some of them derived from others."""

import typing as _typing

from ._lazy import names as _names

if _typing.TYPE_CHECKING:
    from ._interface.state import DerivedField as DerivedField
    from ._interface.state import State as State
    from ._interface.state import derived as derived
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "DerivedField": "_interface.state",
            "State": "_interface.state",
            "derived": "_interface.state",
        },
        private=False,
    )
