"""Programs lowered or compiled for given arguments, to look at and to call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._errors import StaticError
from .._jax.trees import tree_flatten
from .._view.result import unmix
from .._view.taken_apart import take_apart

if TYPE_CHECKING:
    from .core import CompiledFunction
    from .entry import Specialization


class _Around:
    """Base of JAX's stages for the user's function: other attributes are JAX's."""

    def __init__(
        self,
        core: CompiledFunction,
        entry: Specialization,
        stage: Any,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ):
        self._core = core
        self._entry = entry
        self._stage = stage
        self._args = args
        self._kwargs = kwargs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self._stage)})

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} program of {self._core.where}>"


class Traced(_Around):
    """Counterpart of `jax.stages.Traced` for the user's function. Its other attributes are
    JAX's.
    """

    def lower(self) -> Lowered:
        """Lower the traced program."""
        with self._entry.numbers():
            return Lowered(
                self._core,
                self._entry,
                self._stage.lower(),
                self._args,
                self._kwargs,
            )


class Lowered(_Around):
    """Counterpart of `jax.stages.Lowered`, with the arguments of the user's function. Its other
    attributes are JAX's.
    """

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Compile the program; the options are XLA's."""
        compiled = self._stage.compile(compiler_options)
        return Compiled(
            self._core,
            self._entry,
            compiled,
            self._args,
            self._kwargs,
        )


class Compiled(_Around):
    """Counterpart of `jax.stages.Compiled`, called with the arguments of the user's function. Its
    other attributes are JAX's.
    """

    def __call__(self, *args: object, **kwargs: object) -> Any:
        core = self._core
        values = take_apart(core.bind(self._args + args, {**self._kwargs, **kwargs}))

        # The program fits one entry: the same structure and static values.
        leaves, treedef = tree_flatten(values)
        layout = core.layout((treedef, *map(type, leaves)), values)
        layout, entry = core.settled(layout, leaves, self._entry.options)
        # The function may have forgotten its entry meanwhile, and has another of the same place.
        if entry is not self._entry and not (
            entry.place == self._entry.place and self._entry.holds()
        ):
            raise StaticError(
                core.where,
                "a compiled program was called with another structure or other static values.",
                "It was compiled for one tree structure and one set of static values.",
                "pass the static values that `lower` was given, or call the decorated function"
                " itself.",
                code="J312",
            )
        with self._entry.numbers():
            return unmix(self._stage(*layout.pick(leaves)))
