"""Stage that compiles the function and lets it reuse the buffers of donated arguments.

Under an outer trace this is a call of a sub-jaxpr: JAX inlines it there, caches its trace, and
leaves donation and compiler options to the outermost `jit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from .._errors import shortlist
from .._jax.debug_names import named_like
from .._jax.equinox_checks import own_jit
from .._jax.typed import Array
from .._jax.xla.compiler import CompilerOptions, options_of
from .._view.view import View
from .stage import Fn, Request, Skip, Stage


@dataclass(frozen=True)
class Jit(Stage):
    """Compiled program, one for each call key."""

    donate: tuple[int, ...]
    compiler_options: CompilerOptions
    why: str = field(compare=False)
    name: str = field(default="jit", compare=False)

    @classmethod
    def plan(
        cls,
        view: View,
        request: Request,
    ) -> Self | Skip:
        stage = cls.of(request)
        if request.nested:
            return stage
        reasons = filter(None, [stage.why, _donation(view, request)])
        return replace(stage, why="; ".join(reasons))

    @classmethod
    def of(cls, request: Request) -> Self:
        """Decide before there is a call: only the text of the reason depends on the arguments."""
        if request.nested:
            return cls(
                (),
                (),
                "under an outer trace: a sub-program; donation and compiler options are the"
                " outermost jit's",
            )
        compiler = request.options.compiler
        options = options_of(compiler)
        why = ", ".join(f"{name}={value}" for name, value in options)
        if compiler == "fast":
            why = "for short compile times, at the cost of run time"
        elif why:
            why = f"with {why}"
        return cls(request.donated, options, f"compiled {why}" if why else "")

    def compile(
        self,
        fn: Callable[..., object],
        shardings: Sequence[object] | None = None,
    ) -> Fn:
        """Compile the function, with the shardings of its arguments if they are decided."""
        options = dict(self.compiler_options) or None
        body = _inner(fn) if options else fn
        placed = {} if shardings is None else {"in_shardings": tuple(shardings)}
        return own_jit()(
            body,
            donate_argnums=self.donate or None,
            compiler_options=options,
            **placed,
        )


def _inner(fn: Callable[..., object]) -> Callable[..., object]:
    """Put a jitted function below the one with compiler options.

    JAX accepts compiler options at the top level only. `__wrapped__` of the outer function is
    called elsewhere too, and both share one trace of the body.
    """

    def body(*arrays: Array) -> object:
        return fn(*arrays)

    inner = own_jit()(named_like(body, fn))
    inner.__name__ = inner.__qualname__ = fn.__name__
    return inner


def _donation(view: View, request: Request) -> str:
    if not request.options.donate:
        return "no buffer is donated"
    if request.options.debug_nans:
        return "no buffer is donated, because `debug_nans` runs a bad call again"
    donated = [leaf.path for i, leaf in enumerate(view.leaves) if i in request.donated]
    missing = [name for name in request.options.donate if not view.of(name)]
    text = "donates " + (shortlist(donated) or "nothing")
    if missing:
        text += f"; {', '.join(missing)} holds no array"
    return text
