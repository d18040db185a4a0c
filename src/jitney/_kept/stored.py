"""One kept program as bytes: what was exported, the form of its result, what stands beside it, and
what ran of installed packages. No pickle: text, and JAX's own format, which is a program and no
code of Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from .._jax.compile_cache.own_entries import delete, path_of, read, write
from .._record.libraries import Libraries, Names
from .._record.looked_up import Read

_MAGIC = b"jitney program 6\n"


@dataclass(frozen=True)
class Stored:
    """A kept program.

    Args:
        key: What it was made for.
        form: The form of its result (`form.py`).
        libraries: What ran of installed packages.
        exported: The program, by `jax.export`.
        checks: Of each of its run-time checks, the messages; then the number of the one that failed
            stands behind its results.
        weak: Which of its results are weakly typed: an exported program has forgotten that.
        cuts: Of a padded one, which axes of which results are cut off (`beside.py`).
        asked: Names of modules that its trace computed: each a module and a name.
        second: The key with what these stand for.
        updates: What the trace has changed in place in its arguments, in words
            (`_body/updates.py`).
        plan: Of a computation of several programs, how they are run.
        lengths: Theirs; empty if it is one.
    """

    key: str
    form: Any
    libraries: Libraries
    exported: bytes
    checks: Sequence[Sequence[str]] = ()
    weak: Sequence[int] = ()
    cuts: Sequence[Any] = ()
    asked: Sequence[Read] = ()
    second: str = ""
    updates: Sequence[str] = ()
    plan: Any = None
    lengths: Sequence[int] = ()

    @property
    def programs(self) -> list[bytes]:
        """Each by itself."""
        ends = list(accumulate(self.lengths or [len(self.exported)]))
        return [self.exported[start:end] for start, end in pairwise([0, *ends])]

    @property
    def beside(self) -> str:
        """All that is said beside the program of what it means."""
        return json.dumps([self.form, self.checks, self.weak, self.cuts, self.plan])

    def to_bytes(self) -> bytes:
        """All of it."""
        said = {
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
            "files": self.libraries.files,
            "names": [astuple(names) for names in self.libraries.names],
            "bytes": len(self.exported),
        }
        text = json.dumps(said).encode()
        return b"".join((_MAGIC, len(text).to_bytes(8, "big"), text, self.exported))

    @classmethod
    def of(cls, content: bytes) -> Stored | None:
        """What was written; None where it is of another version of jitney."""
        if not content.startswith(_MAGIC):
            return None
        at = len(_MAGIC) + 8
        end = at + int.from_bytes(content[at - 8 : at], "big")
        said: Mapping[str, Any] = json.loads(content[at:end])
        files = {name: (size, changed) for name, (size, changed) in said["files"].items()}
        exported = content[end:]
        if len(exported) != said["bytes"]:
            return None
        asked = [(module, name) for module, name in said["asked"]]
        libraries = Libraries(files, [Names(*names) for names in said["names"]])
        beside = (
            said["checks"],
            said["weak"],
            said["cuts"],
            asked,
            said["second"],
            said["updates"],
            said["plan"],
            said["lengths"],
        )
        return cls(said["key"], said["form"], libraries, exported, *beside)


def place(folder: Path, name: str, key: str) -> Path:
    """Where the program of a key lies. Its name begins with that of the function, for those who
    list the folder.
    """
    shown = "".join(letter if letter.isalnum() or letter in "_." else "_" for letter in name)[:80]
    return path_of(folder, f"kept_{shown}-{key}")


def load(entry: Path, key: str) -> Stored | None:
    """The program of a key, if it is there and whole."""
    content = read(entry)
    if content is None:
        return None
    stored = Stored.of(content)
    if stored is None or stored.key != key:
        delete(entry)
        return None
    return stored


def save(entry: Path, stored: Stored) -> bool:
    """Keep it; whether that worked."""
    return write(entry, stored.to_bytes())
