"""Compatibility of a file with the JAX and the platform of this process.

JAX promises that later versions, for six months, load what it exports, and promises little for
older versions; since jax 0.11.1 it refuses files beyond that window itself. jitney refuses a JAX
older than the one that exported, and passes on JAX's own message for a file that is too old.
"""

from __future__ import annotations

import re
import struct

import jax
from jax import export as jax_export

from ..._errors import ExportError, format_error
from ..container import missing_flatbuffers
from ..header import Header, ProgramEntry

_RULE = (
    "JAX loads what a version of the six months before it has exported, and nothing of a later one."
)


def check_version(header: Header, where: str) -> None:
    """Check that this JAX may load a file.

    Raises:
        ExportError: This JAX is older than the one that exported, or does not know the calling
            convention.
    """
    if _number(jax.__version__) < _number(header["jax"]):
        raise ExportError(
            where,
            f"it was exported by jax {header['jax']}, and this is jax {jax.__version__}.",
            _RULE,
            f"install jax {header['jax']} or a later one, or export it with this one.",
            code="J291",
        )
    least, most = (
        jax_export.minimum_supported_calling_convention_version,
        jax_export.maximum_supported_calling_convention_version,
    )
    for program in header["programs"]:
        convention = program["calling_convention"]
        if not least <= convention <= most:
            raise ExportError(
                where,
                f"it has convention {convention}, and jax {jax.__version__} knows"
                f" {least} to {most}.",
                _RULE,
                "re-export it with a current JAX.",
                code="J291",
            )


def deserialize_program(
    member: bytes,
    header: Header,
    told: ProgramEntry,
    where: str,
) -> jax_export.Exported:
    """Deserialise one of the programs of a file.

    Args:
        member: JAX's serialised bytes.
        header: Header of the file.
        told: Entry of this program in the header.
        where: Beginning of messages.

    Raises:
        ExportError: JAX does not load it, or its arrays are not those in the header.
    """
    exported = _deserialize_member(member, header, where)
    arguments, results = (
        [str(aval.dtype) for aval in avals] for avals in (exported.in_avals, exported.out_avals)
    )
    arguments_of_header = [aval["dtype"] for aval in told["arrays"]]
    count = len(arguments_of_header)
    padding = told.get("padding") or told.get("block")
    if padding is not None:
        # True sizes and numbers follow the arrays.
        behind = arguments[count:]
        arguments_of_header += behind if len(behind) >= len(padding["axes"]) else []
    if "padding" in told:
        shapes = [list(aval.shape) for aval in exported.in_avals[:count]]
        if shapes != told["padding"]["shapes"]:
            raise ExportError(_no_program(where), code="J290")
    results_of_header = [aval["dtype"] for aval in told["results"]]
    # A program with run-time checks has one result more: the number of the check that failed.
    if told["checks"]:
        results_of_header.append("int32")
    if arguments != arguments_of_header or results != results_of_header:
        raise ExportError(_no_program(where), code="J290")
    return exported


def _no_program(where: str) -> str:
    return format_error(
        where,
        "its program is not the one that its header describes.",
        "A program is loaded only as it was written.",
        "export it again; its digest is right, so it was not damaged on its way.",
    )


def _deserialize_member(
    member: bytes,
    header: Header,
    where: str,
) -> jax_export.Exported:
    try:
        return jax_export.deserialize(bytearray(member))
    except ImportError as error:  # Python's own, or JAX's "Please install 'flatbuffers' ..."
        if "flatbuffers" not in str(error):
            raise
        raise missing_flatbuffers(where) from error
    except (ValueError, NotImplementedError) as error:
        raise ExportError(
            where,
            f"jax {jax.__version__} does not load what jax {header['jax']} exported:"
            f" {str(error).strip().splitlines()[0]}",
            _RULE,
            "export it again, or load it with a JAX of its time.",
            code="J291",
        ) from error
    # The bytes were not written by JAX.
    except (struct.error, AttributeError, TypeError, LookupError) as error:
        raise ExportError(_no_program(where), code="J290") from error


def check_platform(platforms: list[str], where: str) -> None:
    """Check that the default device is of a platform that the program was lowered for.

    Raises:
        ExportError: It is not.
    """
    here = jax_export.default_export_platform()
    if here not in platforms:
        raise ExportError(
            where,
            f"it was exported for {' and '.join(platforms)}, and the default device here is of"
            f" {here}.",
            "What is lowered for one platform may hold operations of it.",
            f"export it with platforms={(*platforms, here)!r}.",
            code="J291",
        )


def _number(version: str) -> tuple[int, ...]:
    # Release numbers only: a local version (`+...`) does not count.
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:4])
