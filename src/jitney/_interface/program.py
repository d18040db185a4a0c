"""The `Program`: a function that compiles on its first call, with the methods that users call on
it.

    bound.py                what it is: a core, a function, bound arguments
    calling.py              its calls: the hot path
    ahead_of_time.py        `compile`, `plan`, `lower` and the like, on abstract values
    function_protocols.py   methods, wrappers, printing, equality, copying
    pickled.py              pickling
    tools.py                tools that report on it, or run it

This file joins them, and has its derivatives: `f.grad(x)` is a `Program` of the derivative, built
when it is first called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .._diagnosis.counters.stats import Stats
from .._jax.trees import register_pytree_node
from .._program.core import CompiledFunction
from .._program.registry import REGISTRY
from .._public import public_in
from .._signature.options import Options
from .ahead_of_time import ProgramAhead
from .bound import Defaults
from .derivatives.derivative import Derivative
from .function_protocols import FunctionProtocols
from .pickled import PickledProgram
from .tools import Tools

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)
S = TypeVar("S")
_T = TypeVar("_T")


@public_in("jitney")
class Program(
    ProgramAhead[P, R],
    FunctionProtocols[P, R],
    PickledProgram[P, R],
    Tools[R],
    Generic[P, R],
):
    """A function under `@optimize`. Created by `jitney.optimize`, not directly.

    It is called as the function it wraps, keeps that function's name, docstring and signature, and
    binds to instances as a method does. As a pytree it holds the arrays of the object that it is
    bound to: a module, or the arguments of a `functools.partial`.
    """

    _inside = (
        "abstract",
        "ahead",
        "arguments",
        "body",
        "bound",
        "bound_as",
        "bound_to",
        "core",
        "decorated",
        "defaults",
        "derivatives",
        "flattened",
        "found",
        "kept",
        "parted",
        "positions",
        "usual",
        "with_body",
        "with_defaults",
    )

    def __init__(
        self,
        core: CompiledFunction,
        fn: Callable[P, R],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        defaults: Defaults | None = None,
    ):
        super().__init__(core, fn, args, kwargs, defaults=defaults)
        # Key of `with_body` -> program of a derivative.
        self._made: dict[Key, AnyProgram] = {}
        # The programs among these that run a derivative's calls without `wrt`, `has_aux` or a
        # direction.
        self._usual: dict[str, AnyProgram] = {}
        # Sparse derivative -> the arguments that determine its structure.
        self.positions: dict[object, tuple[str, ...]] = {}

    @overload
    def __get__(self, instance: None, owner: object = None, /) -> Program[P, R]: ...
    @overload
    def __get__(
        self: Program[Concatenate[S, Q], _T], instance: S, owner: object = None, /
    ) -> Program[Q, _T]: ...
    def __get__(self, instance: object, owner: object = None, /) -> object:
        if instance is None:
            return self
        return self.bound_to((*self._args, instance), self._kwargs)

    @property
    def stats(self) -> Stats:
        """Traces, compiles, cache hits and seconds so far; shared by programs of equal functions
        with equal options.
        """
        calls: dict[str, int] = {}
        for (what, *_), program in self._made.items():
            calls[what] = calls.get(what, 0) + program.core.counters.calls
        stats = self._core.counters.stats()
        return replace(stats, derivatives=calls)

    def clear_cache(self) -> None:
        """Forget everything that was traced and compiled for this function and its derivatives, as
        `clear_cache` of `jax.jit` does. The counters stay.
        """
        self._core.forget()
        for made in self._made.values():
            made.clear_cache()

    # Derivatives, each built when it is first called.

    @property
    def grad(self) -> Derivative[P, Any]:
        """Gradient of a function that returns one number."""
        return Derivative(self, "grad")

    @property
    def value_and_grad(self) -> Derivative[P, tuple[R, Any]]:
        """The number, and its gradient."""
        return Derivative(self, "value_and_grad")

    @property
    def jacobian(self) -> Derivative[P, Any]:
        """Jacobian: for each array of the result, its shape followed by the argument's. Several
        arguments share one program.
        """
        return Derivative(self, "jacobian")

    @property
    def value_and_jacobian(self) -> Derivative[P, tuple[R, Any]]:
        """The result, and its Jacobian."""
        return Derivative(self, "value_and_jacobian")

    @property
    def hessian(self) -> Derivative[P, Any]:
        """Second derivatives of a function that returns one number; for several arguments a dict of
        dicts.
        """
        return Derivative(self, "hessian")

    @property
    def hessian_diag(self) -> Derivative[P, Any]:
        """Second derivative with respect to each element, in the shape of the argument: the
        diagonal of the Hessian, whose sum is the Laplacian.
        """
        return Derivative(self, "hessian_diag")

    @property
    def jvp(self) -> Derivative[..., tuple[R, Any]]:
        """The result, and its derivative along `tangents`."""
        return Derivative(self, "jvp")

    @property
    def vjp(self) -> Derivative[..., tuple[R, Any]]:
        """The result, and the gradient of its product with `cotangent`."""
        return Derivative(self, "vjp")

    @property
    def hvp(self) -> Derivative[..., Any]:
        """Product of the Hessian with `tangents`."""
        return Derivative(self, "hvp")

    @property
    def linearize(self) -> Derivative[P, tuple[R, Callable[..., Any]]]:
        """The result, and a linear function from directions of the arguments to directions of the
        result.
        """
        return Derivative(self, "linearize")

    def with_body(
        self,
        fn: Callable[..., object],
        options: Options,
        key: Key | None = None,
    ) -> AnyProgram:
        """Return the program of another function of the same arguments, bound as this one is. With
        a key it is cached.
        """
        made = Program(REGISTRY.core(fn, options, self._core.namespace), fn)
        if key is not None:
            self._made[key] = made
        return made.bound_as(self)

    def kept(self, key: Key) -> AnyProgram | None:
        """Return the program that `with_body` cached under a key."""
        made = self._made.get(key)
        return made and made.bound_as(self)

    def derivatives(self, what: str) -> list[AnyProgram]:
        """Return the cached programs of one derivative, with respect to any arguments."""
        return [made for key, made in self._made.items() if key[0] == what]

    @property
    def usual(self) -> dict[str, AnyProgram]:
        """Derivative -> the program of its calls without `wrt` and without a direction, after the
        first such call. Empty for a bound program.
        """
        return {} if self._args or self._kwargs else self._usual

    def with_defaults(self, defaults: Defaults) -> Program[P, R]:
        """Return the same program with other defaults for its derivatives; see
        `lazy_derivatives`.
        """
        same = self._with(
            _defaults=defaults,
            _made={},
            _usual={},
            positions={},
        )
        return same.decorated() if "__call__" in vars(self) else same


AnyProgram = Program[..., Any]
"""A program of any arguments and any result."""
Key = tuple[str, *tuple[object, ...]]
"""A derivative, and its other options."""
_program: Any = Program
register_pytree_node(
    Program,
    _program.flattened,
    lambda function, bound: Program(function.core, function.fn, *bound),
)
