"""A program that another process has traced: found and run, or traced here and kept for the next one.

It happens inside of JAX's own trace of the call, once for each key of JAX's, so that warm calls are JAX's as ever: what stands in the
program is either the body, or one call of what was exported from it. Under an outer transform, where an exported program has no derivative
and no map, an entry of its own is traced as usual (`Function.differs_nested`).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import jax

from .._axes import at_any_size
from .._body.body import Body
from .._body.call_key import trace_key
from .._body.plain import plain_run
from .._errors import VerificationError, sentence
from .._jax.compile_cache.cache import own
from .._jax.equinox_checks import has_equinox_checks, own_jit
from .._jax.trees import tree_flatten, tree_unflatten
from .._jax.user_contexts import KEPT
from .._record.libraries import Libraries
from .._record.running import watched
from .._record.unsure import Unsure
from .._verify import is_verified
from .._view.layout import described, jit_is_off
from .._view.result import Mixed, Outcome
from .form import Forms
from .key import key_of, unsupported
from .stored import Stored, load, place, save

_jax: Any = jax
_EXPORT = (ValueError, TypeError, NotImplementedError)
"""What `jax.export` raises of a program that it cannot write."""


@dataclass(frozen=True)
class _Asked:
    """One call that is looked for: its key, where it would lie, the user's code that may run, and the arguments."""

    key: str
    entry: Path
    codes: frozenset[CodeType]
    forms: Forms


class Kept:
    """Runs the trace of a body, or what was kept of it.

    Args:
        body: The function and its kind of calls.
        trace: What JAX traces without it.
    """

    def __init__(self, body: Body, trace: Callable[[Sequence[Any]], Any]):
        self._body = body
        self._trace = trace
        self.notes: dict[Hashable, tuple[bool, str]] = {}
        """Of each call key, whether its program is kept, and why not."""

    def __call__(self, arrays: Sequence[Any]) -> Any:
        if jit_is_off() or plain_run() is not None or at_any_size():
            return self._trace(arrays)
        key = trace_key(arrays)
        try:
            asked = self._asked(arrays)
        except Unsure as unsure:
            self.notes[key] = (False, f"not kept: {unsure}")
            return self._trace(arrays)
        stored, changed = self._found(asked)
        if stored is None:
            return self._made(asked, arrays, key, changed)
        if is_verified(self._body.core.options):
            self._verify(asked, arrays, stored)
        self.notes[key] = (True, "found: neither traced nor lowered in this process")
        return self._called(asked, stored, arrays)

    def note(self, arrays: Sequence[Any]) -> tuple[bool, str]:
        """Whether the program of a call is kept, and why not."""
        refused = unsupported(self._body.core.options)
        if refused is not None:
            return False, f"not kept: {refused}"
        return self.notes.get(trace_key(arrays), (True, "not called yet"))

    def _asked(self, arrays: Sequence[Any]) -> _Asked:
        if importlib.util.find_spec("flatbuffers") is None:
            raise Unsure("`jax.export` needs the package flatbuffers to write programs, and it is not installed")
        folder = own() if self._body.core.options.cache else None
        if folder is None:
            raise Unsure("there is no folder of jitney's own for compiled programs (see `cache` above)")
        key, codes = key_of(self._body, arrays)
        entry = place(folder, self._body.core.name, key)
        return _Asked(key, entry, codes, Forms(self._body.layout.values([object() for _ in arrays], self._body.statics)))

    def _found(self, asked: _Asked) -> tuple[Stored | None, str]:
        stored = load(asked.entry, asked.key)
        if stored is None:
            return None, ""
        changed = stored.libraries.changed()
        return (stored, "") if changed is None else (None, f"; the one that was kept is not used: {changed}")

    def _called(self, asked: _Asked, stored: Stored, arrays: Sequence[Any]) -> Any:
        outcome = Outcome()
        outcome.treedef, outcome.rest = asked.forms.read(stored.form)
        return outcome.output(_export().deserialize(bytearray(stored.exported)).call(*arrays))

    def _made(self, asked: _Asked, arrays: Sequence[Any], key: Hashable, why: str) -> Any:
        """Trace it here; what is sure is kept, and run as another process will run it."""
        trace = _Trace(self._trace, self._body.core.name)
        with KEPT(object()):  # a value that nobody has had makes JAX forget what it has traced: all bodies run again, and are seen
            try:
                stored = self._stored(asked, trace, arrays)
                is_kept = save(asked.entry, stored)
                self.notes[key] = (is_kept, f"kept for other processes{why}" if is_kept else "not kept: the folder cannot be written")
            except Unsure as unsure:
                self.notes[key] = (False, f"not kept: {unsure}")
                return trace.inside(arrays)
        return self._called(asked, stored, arrays)

    def _stored(self, asked: _Asked, trace: _Trace, arrays: Sequence[Any]) -> Stored:
        export = _export()
        specs = [_jax.ShapeDtypeStruct(*described(array)[:2], weak_type=described(array)[2]) for array in arrays]
        with watched(asked.codes) as ran:
            traced = trace.jitted.trace(*specs)
            _check(traced)
            exported = _written(lambda: export.export(trace.jitted)(*specs))
        content = bytes(_written(exported.serialize))
        if ran.problem is not None:
            raise Unsure(ran.problem)
        libraries = Libraries.of(ran.libraries)
        form = asked.forms.written(*trace.form())
        if key_of(self._body, arrays)[0] != asked.key:
            raise Unsure("the trace changes what it reads")
        return Stored(asked.key, form, libraries, content)

    def _verify(self, asked: _Asked, arrays: Sequence[Any], stored: Stored) -> None:
        """Trace as well, and compare.

        Raises:
            VerificationError: The programs differ.
        """
        trace = _Trace(self._trace, self._body.core.name)
        with KEPT(object()):
            fresh = self._stored(asked, trace, arrays)
        if _text(fresh.exported) != _text(stored.exported) or fresh.form != stored.form:
            raise VerificationError(
                sentence(self._body.core.where, "the program that was kept is not the one that is traced now.",
                         'Under `verify` each program found by cache="program" is traced too, and their texts are equal.',
                         f"this is a fault of jitney's: please report it; until then delete {asked.entry}, and leave `cache` out.")
            )  # fmt: skip


class _Trace:
    """The body as a function of flat arrays to flat arrays, under a `jit` of its own, whose trace JAX keeps: to be exported, or to stand
    where it would have stood without all this."""

    def __init__(self, trace: Callable[[Sequence[Any]], Any], name: str):
        self._treedef: Any = None

        def flat(*arrays: Any) -> list[Any]:
            out, self._treedef = tree_flatten(trace(arrays))
            return out

        flat.__name__ = flat.__qualname__ = name
        self.jitted: Any = own_jit()(flat, inline=True)

    def inside(self, arrays: Sequence[Any]) -> Any:
        """The result of the body in the trace around this."""
        out = self.jitted(*arrays)
        return tree_unflatten(self._treedef, out)

    def form(self) -> tuple[Any, Any]:
        """The structure of the result, and what it holds besides arrays."""
        whole = tree_unflatten(self._treedef, [None] * self._treedef.num_leaves)
        return (whole.outcome.treedef, whole.outcome.rest) if type(whole) is Mixed else (self._treedef, ())


def _written(step: Callable[[], Any]) -> Any:
    """What a step of `jax.export` gives.

    Raises:
        Unsure: It cannot write this program.
    """
    try:
        return step()
    except _EXPORT as error:
        raise Unsure(f"`jax.export` does not write it: {str(error).splitlines()[0]}") from None


def _check(traced: Any) -> None:
    closed = traced.jaxpr
    if has_equinox_checks(closed):
        raise Unsure("it holds run-time checks (`eqx.error_if`), and programs with checks are not kept yet")
    if closed.effects:
        raise Unsure("it has effects: it calls back into Python, or changes references")
    if any(aval.weak_type for aval in closed.out_avals if hasattr(aval, "weak_type")):
        raise Unsure("one of its results is a weakly typed number, and would come out strong")


def _export() -> Any:
    """Imported where it is needed: not by `import jax`."""
    return importlib.import_module("jax.export")


def _text(exported: bytes) -> str:
    """A program as text, without the places in files that it names."""
    text: str = _export().deserialize(bytearray(exported)).mlir_module()
    lines = (line for line in text.splitlines() if not line.startswith("#loc"))
    return _PLACE.sub("", "\n".join(lines))


_PLACE = re.compile(r' loc\((?:[^()"]|"[^"]*"|\([^()]*\))*\)')
