"""File format of a cached program: the exported program, the form of its result, the side effects
of its trace, and the code of installed packages that ran. It is JSON and JAX's own format, and no
pickle: reading it runs no Python code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from .._jax.compile_cache.own_entries import delete, path_of, read, write
from .._record.dynamic_reads import Read
from .._record.libraries import Libraries, Names

_MAGIC = b"jitney program 7\n"


@dataclass(frozen=True)
class SerializedProgram:
    """A cached program.

    Args:
        key: Its cache key.
        form: The form of its result (`form.py`).
        libraries: Code of installed packages that ran.
        exported: The program, by `jax.export`.
        checks: Messages of each run-time check; with checks, the number of the one that failed is
            its last result.
        weak: Indices of weakly typed results: an exported program has forgotten them.
        cuts: For a padded program, which axes of which results are cut off (`padded_cuts.py`).
        asked: Attributes that its trace looked up by computed names: module and name of each.
        second: The key with the values of these.
        updates: Mutations that the trace made in its arguments, in words (`_body/updates.py`).
        plan: For a computation of several programs, the order in which they run.
        lengths: Bytes of each program; empty for a single one.
        captured: Digests of the captured arrays that it takes after its arguments.
    """

    key: str
    form: object
    libraries: Libraries
    exported: bytes
    checks: Sequence[Sequence[str]] = ()
    weak: Sequence[int] = ()
    cuts: Sequence[object] = ()
    asked: Sequence[Read] = ()
    second: str = ""
    updates: Sequence[str] = ()
    plan: Any = None
    lengths: Sequence[int] = ()
    captured: Sequence[str] = ()

    @property
    def programs(self) -> list[bytes]:
        """The programs, one by one."""
        ends = list(accumulate(self.lengths or [len(self.exported)]))
        return [self.exported[start:end] for start, end in pairwise([0, *ends])]

    @property
    def metadata(self) -> str:
        """Everything about the program besides its code, as text."""
        parts = [self.form, self.checks, self.weak, self.cuts, self.plan, list(self.captured)]
        return json.dumps(parts)

    def to_bytes(self) -> bytes:
        """Return the content of the file: magic, length of the JSON, JSON, programs."""
        header = {
            "key": self.key,
            "form": self.form,
            "checks": self.checks,
            "weak": self.weak,
            "cuts": self.cuts,
            "asked": self.asked,
            "second": self.second,
            "updates": self.updates,
            "plan": self.plan,
            "lengths": self.lengths,
            "captured": self.captured,
            "files": self.libraries.files,
            "names": [astuple(names) for names in self.libraries.names],
            "bytes": len(self.exported),
        }
        text = json.dumps(header).encode()
        return b"".join((_MAGIC, len(text).to_bytes(8, "big"), text, self.exported))

    @classmethod
    def of(cls, content: bytes) -> SerializedProgram | None:
        """Read the content of a file; None if another version of jitney has written it."""
        if not content.startswith(_MAGIC):
            return None
        at = len(_MAGIC) + 8
        end = at + int.from_bytes(content[at - 8 : at], "big")
        header = json.loads(content[at:end])

        files = {name: (size, changed) for name, (size, changed) in header["files"].items()}
        exported = content[end:]
        if len(exported) != header["bytes"]:
            return None
        libraries = Libraries(files, [Names(*names) for names in header["names"]])
        return cls(
            header["key"],
            header["form"],
            libraries,
            exported,
            checks=header["checks"],
            weak=header["weak"],
            cuts=header["cuts"],
            asked=[(module, name) for module, name in header["asked"]],
            second=header["second"],
            updates=header["updates"],
            plan=header["plan"],
            lengths=header["lengths"],
            captured=header["captured"],
        )


def place(
    folder: Path,
    name: str,
    key: str,
) -> Path:
    """Return the path of the program of a key. The file name begins with that of the function, for
    those who list the folder.
    """
    letters = [letter if letter.isalnum() or letter in "_." else "_" for letter in name]
    shown = "".join(letters)[:80]
    return path_of(folder, f"kept_{shown}-{key}")


def load(entry: Path, key: str) -> SerializedProgram | None:
    """Return the program of a key if it is there and complete."""
    content = read(entry)
    if content is None:
        return None
    stored = SerializedProgram.of(content)
    if stored is None or stored.key != key:
        # Of another version of jitney, or not the file that its name promises.
        delete(entry)
        return None
    return stored


def save(entry: Path, stored: SerializedProgram) -> bool:
    """Write the program, and return whether that succeeded."""
    return write(entry, stored.to_bytes())
