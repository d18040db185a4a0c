"""Derivatives of a function, as functions of the same arguments: bodies of programs of their own.

A derivative is not a stage inside the program of its function, since its results are others. It is
the body of another program, with the options of the function around it. So the derivative itself is
padded, cut into chunks or mapped, and `remat` stands inside it.

    f.grad             ->  a program whose body is Derived(f, "grad", ...)
    Derived.__call__   ->  bind the arguments, split them into `at` (differentiated) and the rest,
                           then one method per kind (`derivatives/`): `_grad`, `_jacobian`, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import Parameter as Kind
from inspect import Signature
from typing import Any

from ..._contract.contract import Contract, Parameter, contract_of
from ..._signature.binding import signature_of
from ..._signature.hints import AnyHint
from ..._signature.options import VmapAxis
from ..._signature.paths import root_of
from .arguments import COTANGENT, TANGENT, DerivedCall
from .gradients import Directional, Gradient
from .jacobians import Diagonal, Jacobian
from .options import DerivativeOptions, What

JACOBIANS = ("jacobian", "value_and_jacobian", "hessian")
"""Kinds that several passes make."""
_KINDS: Mapping[What, type[DerivedCall]] = {
    "grad": Gradient,
    "value_and_grad": Gradient,
    "jacobian": Jacobian,
    "value_and_jacobian": Jacobian,
    "hessian": Jacobian,
    "hessian_diag": Diagonal,
    "jvp": Directional,
    "vjp": Directional,
    "hvp": Directional,
    "linearize": Directional,
}


KEYWORDS = {
    **{
        name: f"set it on the function: jitney.lazy_derivatives({name}=...)(f)."
        for name in ("sparse", "mode", "skip")
    },
    "argnums": 'say with respect to what by name: wrt="x".',
}
"""Keywords that derivatives do not take, with a hint at the right one."""
KEYWORDS_OF_DERIVATIVES = {
    "wrt": 'derivatives take it, as f.grad(..., wrt="x").',
    "has_aux": "f.grad and f.value_and_grad take it.",
}
"""Keywords that functions do not take, with a hint at the derivatives that do."""


@dataclass(frozen=True)
class Derived(DerivativeOptions):
    """Derivative of a function. Called with the function's arguments, and with directions by
    keyword.
    """

    def __post_init__(self) -> None:
        for name in ("__name__", "__qualname__"):
            of_function = getattr(self.fn, name, type(self.fn).__name__)
            object.__setattr__(self, name, f"{of_function}.{self.what}")
        for name in ("__module__", "__doc__"):
            object.__setattr__(self, name, getattr(self.fn, name, None))
        object.__setattr__(self, "__wrapped__", self.fn)
        object.__setattr__(self, "__signature__", self._with_directions(signature_of(self.fn)))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return Derived, tuple(getattr(self, item.name) for item in fields(self))

    @property
    def directions(self) -> tuple[str, ...]:
        """Parameters in addition to those of the function: tangents or a cotangent."""
        if self.what in ("jvp", "hvp"):
            return tuple(TANGENT + name for name in self.wrt or ())
        return (COTANGENT,) if self.what == "vjp" else ()

    def _with_directions(self, signature: Signature) -> Signature:
        parameters = list(signature.parameters.values())
        # Keyword-only parameters have to stand before `**kwargs`.
        at = _end_of_parameters([parameter.kind for parameter in parameters])
        parameters[at:at] = [Kind(name, Kind.KEYWORD_ONLY) for name in self.directions]
        return signature.replace(parameters=parameters, return_annotation=Signature.empty)

    def contract(self, namespace: Mapping[str, object] | None) -> Contract:
        """Contract of the function, extended by its directions.

        A direction has the annotation of its primal; the result has none.
        """
        plain = contract_of(self.fn, signature_of(self.fn), self.where, namespace)
        hints = {TANGENT + parameter.name: parameter.hint for parameter in plain.parameters}
        hints[COTANGENT] = plain.result
        parameters = list(plain.parameters)
        at = _end_of_parameters([parameter.kind for parameter in parameters])
        parameters[at:at] = [
            Parameter(name, Kind.KEYWORD_ONLY, hints[name], has_default=False)
            for name in self.directions
        ]
        result = AnyHint("the result of a derivative")
        return replace(plain, parameters=tuple(parameters), result=result)

    def __call__(
        self,
        /,
        *args: object,
        **kwargs: object,
    ) -> Any:
        directions = {name: kwargs.pop(name) for name in self.directions}
        bound = signature_of(self.fn).bind(*args, **kwargs)
        bound.apply_defaults()
        return _KINDS[self.what](self, bound, directions).make()


def with_directions(
    axes: tuple[VmapAxis, ...],
    directions: Sequence[str],
) -> tuple[VmapAxis, ...]:
    """Mapped axes in the dict form, of the directions too: a tangent has the axis where its primal
    has it, and a cotangent in front, as the result.
    """
    extended: list[VmapAxis] = []
    for axis in axes:
        dims = list(axis.dims or ())
        for direction in directions:
            if direction == COTANGENT:
                dims.append((direction, 0))
            else:
                primal = direction.removeprefix(TANGENT)
                dims += [
                    (TANGENT + path, position)
                    for path, position in axis.dims or ()
                    if root_of(path) == primal
                ]
        # The rank rule goes by the annotations, which directions have too.
        extended.append(axis if axis.dims is None else replace(axis, dims=tuple(dims)))
    return tuple(extended)


def without_directions(
    axes: tuple[VmapAxis, ...],
    directions: Sequence[str],
) -> tuple[VmapAxis, ...]:
    """Inverse of `with_directions`."""
    return tuple(
        axis
        if axis.dims is None
        else replace(
            axis, dims=tuple(dim for dim in axis.dims if root_of(dim[0]) not in directions)
        )
        for axis in axes
    )


def _end_of_parameters(kinds: Sequence[int]) -> int:
    """Position behind all parameters of a signature, but before `**kwargs`."""
    return kinds.index(Kind.VAR_KEYWORD) if Kind.VAR_KEYWORD in kinds else len(kinds)
