"""Pickles of programs: by name, as a function is pickled; one of `__main__` by what it is made of
(`main_pickle.py`), and a bound one by its function, its options and its arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar, cast

from .._program.registry import REGISTRY
from .._signature.options import Options
from .calling import CallableProgram
from .main_pickle import Parts, Sender, Sending, digest_of, known_program, remember

if TYPE_CHECKING:
    from .defaults import Defaults

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_Pickled = TypeVar("_Pickled", bound="PickledProgram[..., object]")


class PickledProgram(CallableProgram[P, R]):
    """A program that can be pickled."""

    # Set once it is pickled, if it is a program of `__main__`.
    _sending: Sending | None = None

    def _with(self, **changed: object) -> Self:
        same = super()._with(**changed)
        same._sending = None
        return same

    def __reduce__(self) -> str | tuple[object, ...]:
        # As a function is pickled: by its name, which must lead to this very program.
        if self._args or self._kwargs or not _found_by_name(self):
            bound = (self._args, self._kwargs, self._defaults)
            return _restore, (type(self), self._fn, self._core.options, *bound)
        if self.__dict__["__module__"] != "__main__":
            return self.__dict__["__qualname__"]
        sending = self._sending_from_main()
        digest = digest_of(self._parts)
        return _receive, (type(self), sending.token, digest), (sending.sender, digest)

    def __setstate__(self, state: tuple[Sender, str | None]) -> None:
        # A program that is known here already stays as it is.
        if "_core" in vars(self):
            return
        sender, digest = state
        fn, options, defaults = sender()
        core = REGISTRY.core(fn, options)
        type(self).__init__(
            self, core, cast("Callable[P, R]", fn), defaults=cast("Defaults", defaults)
        )
        remember(self, digest)

    @property
    def _parts(self) -> Parts:
        return self._fn, self._core.options, self._defaults

    def _sending_from_main(self) -> Sending:
        if self._sending is None:
            self._sending = Sending(self, self.__dict__["__qualname__"], self._parts)
        return self._sending

    @property
    def _sender(self) -> Sender:
        """The function that `main_pickle` has pickle find by its name."""
        return self._sending_from_main().sender


def _found_by_name(program: object) -> bool:
    names = vars(program)
    reached: object = sys.modules.get(names["__module__"] or "")
    for part in names["__qualname__"].split("."):
        reached = getattr(reached, part, None)
    return reached is program


def _restore(
    cls: type[_Pickled],
    fn: Callable[..., object],
    options: Options,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    defaults: Defaults,
) -> _Pickled:
    return cls(REGISTRY.core(fn, options), fn, args, kwargs, defaults=defaults)


def _receive(cls: type[_Pickled], token: str, digest: str | None) -> _Pickled:
    """Return a known program, or one that its state is yet to fill: functions of `__main__` may
    refer to each other, so a program is an object before its function is.
    """
    known = known_program(token, digest)
    return cls.__new__(cls) if known is None else cast("_Pickled", known)
