"""Export of a body: traced on its own and written by `jax.export`, with its run-time checks as
data, so that no exported program calls Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.export

from .._checks import CheckTable, evaluate_flagged, with_checks
from .._checks import Unflaggable as HasCallbacks
from .._jax.debug_names import named_like
from .._jax.equinox_checks import has_equinox_checks, messages_of, own_jit
from .._jax.programs.jaxprs import abstract
from .._jax.programs.large_constants import (
    LargeConstant,
    has_content,
    large_constants,
    taking_constants,
)
from .._jax.stand_ins import unflatten_stand_ins
from .._jax.trees import set_weak_type, tree_flatten, tree_unflatten
from .._jax.typed import ClosedJaxpr, Jitted, PyTreeDef
from .._jax.xla.exported import export, is_plain, program_of, results_of
from .._record.unsure import NotDeterministic
from .._view.layout import aval_parts
from .._view.result import Mixed
from .form import Rest
from .mesh_layout import MeshLayout

_EXPORT = (ValueError, TypeError, NotImplementedError)
"""Exceptions of `jax.export` for a program that it cannot write."""
Messages = tuple[tuple[str, ...], ...]
_T = TypeVar("_T")


@dataclass(frozen=True)
class Exported:
    """An exported program.

    Args:
        program: JAX's.
        checks: Messages of each run-time check. If there are any, the number of the check that
            failed is the last result.
        weak: Indices of weakly typed results.
        captured: Digests of the captured arrays that it takes after its arguments.
    """

    program: jax.export.Exported
    checks: Messages
    weak: tuple[int, ...]
    captured: tuple[str, ...]


def call_exported(
    content: bytes,
    arrays: Sequence[object],
    checks: Sequence[Sequence[str]],
    weak: Sequence[int],
) -> list[jax.Array]:
    """Return the results of a serialised program as the body would: with its weak types, under its
    checks, and not committed to a device.
    """
    program = program_of(content)
    out = results_of(program, arrays) if program.nr_devices == 1 else list(program.call(*arrays))

    # `jax.export` forgets weak types.
    number = out.pop() if checks else None
    for i in weak:
        out[i] = set_weak_type(out[i], is_weak=True)
    return with_checks(out, number, checks)


class ExportableTrace:
    """The body as a function of flat arrays to flat arrays, under a `jit` of its own.

    JAX caches its trace, which serves twice: it is exported, or inlined where the body would have
    been traced, if the program cannot be cached.

    Args:
        trace: The function that JAX traces.
        name: Name of the function.
        given: Arguments of `trace`: arrays, followed by the true sizes of a padded call.
        laid: The devices, if there are several.
        known: Large arrays that the key of the program holds, by the digest of their content.
    """

    def __init__(
        self,
        trace: Callable[[Sequence[object]], object],
        name: str,
        given: Sequence[object],
        laid: MeshLayout | None,
        known: Mapping[str, object],
    ):
        self._treedef: Any = None
        self._name = name
        self._laid = laid
        self._known = known
        self._arrays, treedef = tree_flatten(given)

        def flat(*arrays: object) -> list[jax.Array]:
            result = trace(tree_unflatten(treedef, arrays))
            out, self._treedef = tree_flatten(result)
            return out

        self._flat = named_like(self._rename(flat), trace)
        self.jitted: Jitted = own_jit()(self._flat, inline=True)

    def inside(self) -> object:
        """Return the result of the body in the surrounding trace."""
        out = self.jitted(*self._arrays)
        return tree_unflatten(self._treedef, out)

    def form(self) -> tuple[PyTreeDef, Rest]:
        """Return the structure of the result, and the parts of it that are not arrays."""
        whole = unflatten_stand_ins(self._treedef, [None] * self._treedef.num_leaves)
        if type(whole) is Mixed:
            return whole.outcome.treedef, whole.outcome.rest
        return self._treedef, ()

    def export_program(self) -> Exported:
        """Return JAX's exported program, with the properties that `jax.export` forgets.

        Raises:
            NotDeterministic: The exported program cannot stand for the body.
        """
        specs, table = self._specs(), CheckTable()
        jitted = self.jitted if self._laid is None else self._laid.jit(self._flat, len(specs))
        traced = jitted.trace(*specs)

        avals = traced.jaxpr.out_avals
        weak = tuple(i for i, aval in enumerate(avals) if getattr(aval, "weak_type", False))

        # Checks become data: the program is traced once more, with the number of the failed check
        # as a result.
        if has_equinox_checks(traced.jaxpr):
            if self._laid is not None:
                raise NotDeterministic("it has run-time checks, and runs over several devices")
            jitted = self._with_number(traced.jaxpr, table)
            traced = _data(lambda: jitted.trace(*specs))
        captured = self._captured(traced.jaxpr)
        if captured:
            constants = [each.value for each in captured.values()]
            taking = taking_constants(
                jitted,
                traced.jaxpr,
                constants,
                self._name,
                lambda: False,
            )
            jitted = own_jit()(taking)
            specs += [abstract(each.aval) for each in captured.values()]

        if traced.jaxpr.effects:
            raise NotDeterministic(
                "it has effects: it calls back into Python, or changes references"
            )
        program = run_export(lambda: export().export(jitted)(*specs))
        return Exported(
            program,
            tuple(map(_messages, table.callbacks)),
            weak,
            tuple(captured),
        )

    def _captured(self, jaxpr: object) -> dict[str, LargeConstant]:
        """Return the large constants of a trace that the key holds, by the digest of their content:
        another process finds them there.
        """
        found: dict[str, LargeConstant] = {}
        for each in large_constants(jaxpr) if self._laid is None else ():
            if not each.is_within and not each.aval.weak_type:
                digests = (key for key in self._known if has_content(self._known[key], each.value))
                digest = next(digests, None)
                if digest is not None:
                    found[digest] = each
        return found

    def check_results(self, content: bytes, exported: Exported) -> None:
        """Check that results over several devices are sharded as those of the body.

        Raises:
            NotDeterministic: They are not.
        """
        if self._laid is None:
            return

        def call(*arrays: object) -> list[jax.Array]:
            return call_exported(content, arrays, exported.checks, exported.weak)

        self._laid.check_results(self._flat, call, self._specs())

    def _specs(self) -> list[jax.ShapeDtypeStruct]:
        specs: list[jax.ShapeDtypeStruct] = []
        for array in self._arrays:
            shape, dtype, weak = aval_parts(array)
            specs.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak))
        return specs

    def _with_number(self, closed: ClosedJaxpr, table: CheckTable) -> Jitted:
        def flat(*arrays: object) -> Sequence[object]:
            out, number = evaluate_flagged(closed, arrays, table)
            return [*out, number]

        return own_jit()(self._rename(flat))

    def _rename(self, flat: Callable[..., object]) -> Callable[..., object]:
        flat.__name__ = flat.__qualname__ = self._name
        return flat


def _data(step: Callable[[], _T]) -> _T:
    try:
        return step()
    except HasCallbacks as reason:
        raise NotDeterministic(f"its run-time checks cannot be data: {reason}") from None


def _messages(callback: object) -> tuple[str, ...]:
    messages = messages_of(callback)
    if messages is None:
        raise NotDeterministic("it has a run-time check of a form that jitney does not know")
    return messages


def run_export(step: Callable[[], _T]) -> _T:
    """Return the result of a step of `jax.export`.

    Raises:
        NotDeterministic: `jax.export` cannot write this program.
    """
    try:
        return step()
    except _EXPORT as error:
        raise NotDeterministic(
            f"`jax.export` does not write it: {str(error).splitlines()[0]}"
        ) from None


def content_of(program: jax.export.Exported) -> bytes:
    """Return an exported program as bytes.

    Raises:
        NotDeterministic: The bytes may hide that the program calls something outside of XLA.
    """
    content = bytes(run_export(program.serialize))
    if not is_plain(program, content):
        raise NotDeterministic("the bytes of its program do not tell what that calls")
    return content


def text_of(exported: bytes) -> str:
    """Return a program as text, without the source locations in it."""
    text: str = export().deserialize(bytearray(exported)).mlir_module()
    lines = (line for line in text.splitlines() if not line.startswith("#loc"))
    return _PLACE.sub("", "\n".join(lines))


_PLACE = re.compile(r' loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)')
