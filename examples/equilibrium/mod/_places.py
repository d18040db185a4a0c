"""Where something stands in a file, and the error that says so."""

from dataclasses import dataclass

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
