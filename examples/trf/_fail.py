"""The one form of all errors: what came, the rule, the fix."""

from typing import NoReturn


def fail(what: str, rule: str, fix: str, kind: type[Exception] = ValueError) -> NoReturn:
    """Raise an error in three sentences."""
    raise kind(f"{what}\n{rule}\nFix: {fix}")
