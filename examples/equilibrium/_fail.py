"""The one form of all errors: where and what, the rule, the fix."""


class ModelError(ValueError):
    """A model, a calibration or a request that does not say what it should."""


class NoSteadyState(ValueError):
    """Newton's method did not end at a steady state."""


class NoPath(ValueError):
    """Newton's method did not end at a perfect-foresight path."""


class BlanchardKahn(ValueError):
    """The linear model has no stable solution, or more than one."""


def message(where: str, what: str, rule: str, fix: str) -> str:
    """Four parts to one text."""
    return f"{where}: {what}\n{rule}\nFix: {fix}"
