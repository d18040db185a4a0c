"""Where something stands in a file, and the error that says so."""

from dataclasses import dataclass
from pathlib import Path

from .._fail import ModelError, message


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        """Both, as compilers write it."""
        return f"{self.file}:{self.line}"

    def below(self, lines: int) -> "Place":
        """A line further down."""
        return Place(self.file, self.line + lines)


Line = tuple[Place, str]


def fail(place: Place, what: str, rule: str, fix: str) -> ModelError:
    """The error that says what is not read, and what to write instead."""
    return ModelError(message(str(place), what, rule, fix))


def text_of(path: Path) -> str:
    """A file as text. Letters that are not UTF-8, as in older files, are mostly in comments;
    elsewhere they are not read, with their line.

    Raises:
        ModelError: It is not text.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    if "\0" in text:
        raise fail(
            Place(path.name, 1),
            "it is not text.",
            "A file of a model is text, in UTF-8.",
            "pass the `.mod` file, or save it as UTF-8.",
        )
    return text
