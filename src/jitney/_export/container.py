"""File format: a line with the format number, a digest of the rest, a JSON header, and members with
declared lengths.

Nothing is unpickled, and the digest is verified before anything else is read. It protects against
damage, not against attacks: whoever can write the file can write a digest.

    "jitney program 0001", newline   SHA-256 (32 bytes)   length of header (8 bytes, little endian)
    header (JSON, lists the members with their lengths)   member 0   member 1   ...
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from .._errors import ExportError, Where, format_error
from .._host.atomic_files import replace_file
from .header import Header, is_members, made_of_header

FORMAT = 1
"""Version of the file format and of the header. It changes whenever an older jitney would misread a
file.
"""
OF_ROWS = 2
"""The same of a file that takes rows of unlike lengths, which the first jitney with files does not
know.
"""
OF_BUCKETS = 3
"""The same of a file with programs of buckets, which a jitney that knows formats 1 and 2 would call
at exact size.
"""
_FORMATS = (FORMAT, OF_ROWS, OF_BUCKETS)
_MAGIC = b"jitney program "
# four digits and the end of the line
_LINE = len(_MAGIC) + 5
_DIGEST = 32
# bytes of the number that is the length of the header
_LENGTH = 8
_ONLY = "A program is loaded only as it was written: all of it is covered by a SHA-256 digest."


@dataclass(frozen=True)
class Content:
    """Parsed content of a file.

    Args:
        header: JSON data, of which `check_header` verifies the form.
        members: Bytes by name.
        digest: SHA-256 of the file's content, in hexadecimal digits.
        size: Size of the file in bytes.
    """

    header: Header
    members: Mapping[str, bytes]
    digest: str
    size: int


def path_of(file: object, where: object) -> Path:
    """Return the path that a user named.

    Raises:
        ExportError: The value is not a path of a file.
    """
    if not isinstance(file, (str, os.PathLike)) or not isinstance(os.fspath(file), str):
        raise ExportError(
            f"{where}",
            f"{file!r} is not a path.",
            "A program is one file.",
            'name it: "fit.jitney".',
            code="J294",
        )
    path = Path(file)
    if not path.name or "\0" in path.name:
        raise ExportError(
            f"{where}",
            f"{file!r} names no file.",
            "A program is one file.",
            'name it: "fit.jitney".',
            code="J294",
        )
    return path


def write(
    path: Path,
    header: Mapping[str, object],
    members: Mapping[str, bytes],
    where: object,
) -> None:
    """Write a file atomically: an existing file stays until the new one is complete.

    Raises:
        ExportError: The system refuses the write.
    """
    listed = {**header, "members": [[name, len(member)] for name, member in members.items()]}
    head = json.dumps(listed, ensure_ascii=True, allow_nan=False).encode()
    line = _MAGIC + f"{_format_of(header):04}\n".encode()
    body = b"".join([len(head).to_bytes(_LENGTH, "little"), head, *members.values()])
    try:
        # For all users, since others may use the program.
        replace_file(path, line + hashlib.sha256(line + body).digest() + body, durable=True)
    except OSError as error:
        raise ExportError(
            f"{where}",
            f"{path} could not be written: {error.strerror or error}.",
            "A file is replaced as a whole, or stays as it was.",
            "fix what the system reports, or name another file.",
            code="J294",
        ) from error


def _format_of(header: Mapping[str, object]) -> int:
    if header.get("rows") is not None:
        return OF_ROWS
    programs = header.get("programs")
    listed = cast("list[object]", programs) if isinstance(programs, list) else []
    has_buckets = any(isinstance(each, dict) and "padding" in each for each in listed)
    return OF_BUCKETS if has_buckets else FORMAT


def read(path: Path) -> Content:
    """Read a file that is complete.

    Raises:
        ExportError: It does not exist, is not a program of jitney, has another format, or is
            damaged.
    """
    where = f"jitney.load({str(path)!r})"
    try:
        if not path.is_file():
            raise ExportError(
                where,
                "there is no such file.",
                "What is loaded is a file of `f.export(...)`.",
                "correct the path.",
                code="J290",
            )
        with path.open("rb") as file:
            line = file.read(_LINE)
            # before the rest is read: a file of another kind may have any size
            _check_line(line, where)
            digest, body = file.read(_DIGEST), file.read()
    except OSError as error:
        raise ExportError(
            where,
            f"it could not be read: {error.strerror or error}.",
            "What is loaded is a file of `f.export(...)`.",
            "fix what the system reports.",
            code="J290",
        ) from error

    # The digest covers the format line as well.
    if hashlib.sha256(line + body).digest() != digest:
        raise ExportError(
            where,
            "it is damaged: its digest is that of other bytes.",
            _ONLY,
            "copy or export it again.",
            code="J290",
        )
    return _split_members(
        body,
        digest.hex(),
        _LINE + len(digest) + len(body),
        where,
    )


def _check_line(line: bytes, where: str) -> None:
    number = line[len(_MAGIC) : -1]
    if (
        len(line) < _LINE
        or not line.startswith(_MAGIC)
        or not number.isdigit()
        or not line.endswith(b"\n")
    ):
        raise ExportError(
            where,
            "it is not a program of jitney.",
            "What is loaded is a file of `f.export(...)`.",
            "correct the path.",
            code="J290",
        )
    if int(number) not in _FORMATS:
        raise ExportError(
            where,
            f"it has format {int(number)}, and this jitney reads formats"
            f" {', '.join(map(str, _FORMATS[:-1]))} and {_FORMATS[-1]}.",
            "A file is read by the jitney that wrote it, and by later ones of the same format.",
            "load it with that jitney, or export it again with this one.",
            code="J291",
        )


def _split_members(body: bytes, digest: str, size: int, where: str) -> Content:
    start = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    broken = format_error(
        where, "its parts do not have the lengths that it lists.", _ONLY, "export it again."
    )
    if len(body) < start:
        raise ExportError(broken, code="J290")
    header = made_of_header(lambda: json.loads(body[_LENGTH:start]), where)
    listed = header.pop("members", None) if isinstance(header, dict) else None
    if not is_members(listed):
        raise ExportError(broken, code="J290")

    # The declared lengths must add up to the length of the file.
    members: dict[str, bytes] = {}
    for name, length in listed:
        members[name] = body[start : start + length]
        start += length
    if start != len(body):
        raise ExportError(broken, code="J290")
    # `check_header` has to verify its other fields.
    return Content(cast(Header, header), members, digest, size)


def missing_flatbuffers(where: Where | str) -> ExportError:
    """Error of a file whose programs JAX cannot write or read here."""
    return ExportError(
        where,
        "the package flatbuffers is not there.",
        "JAX writes and reads exported programs with it.",
        'install it: pip install "jitney[export]".',
        code="J291",
    )
