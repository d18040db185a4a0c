"""The one form of all errors: where and what, the rule, the fix."""


class ModelError(ValueError):
    """A model, a calibration or a request that does not say what it should."""


class UnknownName(ModelError, AttributeError):
    """Equations read what the model does not have."""


class NoSteadyState(ValueError):
    """Newton's method did not end at a steady state."""


class NoPath(ValueError):
    """Newton's method did not end at a perfect-foresight path."""


class NoMode(ValueError):
    """The search for the mode of a posterior did not end at one."""


class BlanchardKahn(ValueError):
    """The linear model has no stable solution, or more than one."""


class NotSettled(UserWarning):
    """A path that should end at the steady state is still on its way at the last date; the text
    says how far.
    """


class DegenerateRoot(UserWarning):
    """A steady state at which a variable is zero and an equation says nothing of the others; the
    text says which.
    """


def message(where: str, what: str, rule: str, fix: str) -> str:
    """Four parts to one text."""
    return f"{where}: {what}\n{rule}\nFix: {fix}"
