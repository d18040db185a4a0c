"""Choices that processes hand on: one file for each, beside the persistent cache.

The file is found by the program of the body, traced for two elements, and all else that the times
of a call depend on: the device, the cores, versions, options, and the size as a power of two. It
says which of a few known ways to take, so that a file of someone else's could do no more than that;
it is read only if this user has written it, and whole. Two processes that choose at once each
replace it as a whole.

A file is looked for only where a function of this name has written any, so that other functions are
not traced once more.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

import jax

from ..._diagnosis.needed_values import CAUGHT, need_of
from ..._host.limits import allowed_cores
from ..._host.switches import EXACT
from ..._jax.compile_cache.cache import folder
from ..._jax.compile_cache.own_entries import delete_unfinished, path_of, read, write
from ..._jax.programs.program_parts import program_parts
from ..._jax.settings import settings_of_programs
from ..._jax.typed import Array
from ..._signature.options import option_texts
from ..._view.layout import aval_parts
from ..compiled_calls import CompiledCalls
from ..runners.workers.device_parts import cpu_devices
from .search import LONG_WIDTHS, WHOLE, WIDTHS, Carrier, Kind, RunWay, TrialRecord

_FORMAT = 5
_CARRIERS: tuple[Carrier, ...] = ("", "threads", "devices")


@dataclass(frozen=True)
class ChoiceRecord:
    """A choice, as another process finds it.

    Args:
        way: The way that was chosen.
        whole: Seconds of a whole call, when it was chosen.
        chosen: Seconds of a call in that way.
        spent: Seconds that a search has taken which found nothing so far; 0 if it has ended.
        next_cost: Seconds that its next step takes.
        trials: What it has tried.
    """

    way: RunWay
    whole: float
    chosen: float
    spent: float = 0.0
    next_cost: float = 0.0
    trials: tuple[TrialRecord, ...] = ()


class RecordFile:
    """Place of the record of one kind of calls.

    Args:
        entry: Program of the calls.
        arrays: The first of their arrays.
        dims: Position of the axis in each array.
        size: Its elements.
    """

    def __init__(
        self,
        entry: CompiledCalls,
        arrays: Sequence[Array],
        dims: Sequence[int | None],
        size: int,
    ):
        self._entry = entry
        # Not the arrays themselves, which would stay in memory.
        self._avals = list(map(aval_parts, arrays))
        self._dims = dims
        # Equal bits of one size say nothing of another.
        self.bucket = size if entry.options.auto == EXACT else bucket_of(size)

    def read(self) -> ChoiceRecord | None:
        """Return the record; None if there is none, or none that can be trusted."""
        of_function = self._folder()
        if of_function is None or not of_function.is_dir():
            return None
        path = self._path(of_function)
        content = None if path is None else read(path)
        return None if content is None else _record_of(content)

    def write(self, record: ChoiceRecord) -> None:
        """Write the record. If the folder cannot be written, the next process chooses anew."""
        of_function = self._folder()
        if of_function is None:
            return
        try:
            of_function.parent.mkdir(mode=0o700, exist_ok=True)
            of_function.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return
        path = self._path(of_function)
        if path is not None:
            data = {
                "format": _FORMAT,
                "width": record.way.width,
                "carrier": record.way.carrier,
                "kind": record.way.kind,
                "axis": record.way.axis,
                "whole": record.whole,
                "chosen": record.chosen,
                "spent": record.spent,
                "next_cost": record.next_cost,
                "trials": [asdict(trial) for trial in record.trials],
            }
            # This folder is not swept when a process starts.
            delete_unfinished(path)
            write(path, json.dumps(data).encode())

    def _folder(self) -> Path | None:
        core = self._entry.core
        records = folder("auto") if core.options.cache else None
        return None if records is None else records / re.sub(r"\W", "_", core.name)[:80]

    def _path(self, of_function: Path) -> Path | None:
        digest = self._digest()
        return None if digest is None else path_of(of_function, digest)

    def _digest(self) -> str | None:
        """Return the digest of all that the choice depends on; None if the body cannot be traced
        so.
        """
        entry = self._entry
        two: list[object] = []
        for (shape, dtype, weak), dim in zip(self._avals, self._dims, strict=True):
            if dim is not None:
                shape = (*shape[:dim], 2, *shape[dim + 1 :])
            two.append(jax.ShapeDtypeStruct(shape, dtype, weak_type=weak))
        try:
            with entry.numbers():
                jaxpr = jax.make_jaxpr(entry.run_inner_stages)(*two)
        except CAUGHT as error:
            if need_of(error) is None:
                raise
            return None

        digest = hashlib.sha256()
        texts = (
            *_surroundings(),
            *option_texts(replace(entry.core.options, auto=None)),
            str(entry.options.auto),
            repr(settings_of_programs()),
            str(self.bucket),
        )
        for text in texts:
            digest.update(f"{len(text)} {text}".encode())
        for part in program_parts(jaxpr):
            digest.update(part)
        return digest.hexdigest()[:32]


def bucket_of(size: int) -> int:
    """Return the power of two that a size is counted as: not below it."""
    return 1 << max(size - 1, 0).bit_length()


def _surroundings() -> tuple[str, ...]:
    device = jax.devices()[0]
    return (
        jax.__version__,
        str(device.client.platform_version),
        device.platform,
        device.device_kind,
        platform.machine(),
        *_processor(),
        str(allowed_cores().value),
        str(len(cpu_devices())),
        os.environ.get("XLA_FLAGS", ""),
    )


def _processor() -> list[str]:
    about = Path("/proc/cpuinfo")
    try:
        lines = about.read_text().splitlines()
    except OSError:
        return [platform.processor()]
    return sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})


def _record_of(content: bytes) -> ChoiceRecord | None:
    """Return the record of a file, if it is one."""
    try:
        data: object = json.loads(content)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    known = cast("dict[str, object]", data)
    width, carrier = known.get("width"), known.get("carrier")
    kind, axis = known.get("kind"), known.get("axis")
    whole, chosen, spent = known.get("whole"), known.get("chosen"), known.get("spent")
    next_cost, trials = known.get("next_cost"), _trials_of(known.get("trials"))
    fits = (
        known.get("format") == _FORMAT
        and _is_way(width, carrier)
        and kind in ("mapped", "directions", "memory")
        and isinstance(axis, str)
        and (kind != "directions" or axis in ("forward", "reverse"))
        and isinstance(whole, float)
        and isinstance(chosen, float)
        and 0 < chosen <= whole
        and isinstance(spent, float)
        and 0 <= spent < math.inf
        and isinstance(next_cost, float)
        and 0 <= next_cost < math.inf
    )
    if not fits or trials is None:
        return None
    way = RunWay(
        cast("int | None", width),
        cast("Carrier", carrier),
        cast("Kind", kind),
        cast("str", axis),
    )
    return ChoiceRecord(
        WHOLE if way == WHOLE else way,
        cast("float", whole),
        cast("float", chosen),
        cast("float", spent),
        cast("float", next_cost),
        trials,
    )


def _trials_of(listed: object) -> tuple[TrialRecord, ...] | None:
    """Return the trials of a file, if they are trials."""
    if not isinstance(listed, list):
        return None
    trials: list[TrialRecord] = []
    for each in cast("list[object]", listed):
        if not isinstance(each, dict):
            return None
        known = cast("dict[str, object]", each)
        width, carrier = known.get("width"), known.get("carrier")
        share, has_lost = known.get("share"), known.get("has_lost")
        fits = (
            _is_way(width, carrier)
            and isinstance(share, float)
            and share >= 0
            and isinstance(has_lost, bool)
        )
        if not fits:
            return None
        trial = TrialRecord(
            cast("int | None", width),
            cast("Carrier", carrier),
            cast("float", share),
            cast("bool", has_lost),
        )
        trials.append(trial)
    return tuple(trials)


def _is_way(width: object, carrier: object) -> bool:
    is_width = width is None or (type(width) is int and width in {*WIDTHS, *LONG_WIDTHS})
    return is_width and carrier in _CARRIERS
