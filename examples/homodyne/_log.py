"""What a run says: on the terminal, and with the time of day in `fit.log`."""

import time
from pathlib import Path

from rich.console import Console


class Log:
    """One run.

    Args:
        path: Of the file, which is added to.
        console: For the terminal.
        quiet: Whether the terminal hears only of what is wrong.
    """

    def __init__(self, path: Path, console: Console, *, quiet: bool = False):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.console, self.quiet = path, console, quiet

    @property
    def seen(self) -> bool:
        """Whether somebody sees a bar that moves."""
        return self.console.is_terminal and not self.quiet

    def say(self, text: str, *, style: str = "") -> None:
        """A line for both."""
        self.keep(text)
        if not self.quiet or style:
            self.console.print(
                text, style=style or None, highlight=False, markup=False, soft_wrap=True
            )

    def keep(self, text: str) -> None:
        """Lines for the file alone."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with self.path.open("a") as file:
            file.writelines(f"{stamp} {line}\n" for line in text.splitlines())
