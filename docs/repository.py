"""The address of the repository, for the link at the top of each page: where this copy was cloned from.

Neither the pages nor the package know where they are published, so a fork links to itself. A copy that was cloned from nowhere has no link.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[1]
_SHORT = re.compile(
    r"(?:[\w.-]+@)?(?P<host>[\w-]+(?:\.[\w-]+)+):(?P<path>[^/].*)"
)  # git@host.org:owner/name.git


def variables() -> dict[str, str]:
    """Environment variables that mkdocs.yml reads: the address, and the name of the link."""
    address = of_web(os.environ.get("JITNEY_REPOSITORY", "") or origin())
    if address is None:
        return {}
    return {
        "JITNEY_REPOSITORY": address,
        "JITNEY_REPOSITORY_NAME": urlsplit(address).path.strip("/"),
    }


def origin() -> str:
    """What git calls the place that this copy came from; "" if there is none, or no git."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "config", "--get", "remote.origin.url"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - these words alone
    return said.stdout.strip()


def of_web(address: str) -> str | None:
    """A page of the web for an address that git takes, without who asked for it and with what password; None for a folder.

    >>> of_web("git@host.org:group/jitney.git")
    'https://host.org/group/jitney'
    """
    short = _SHORT.fullmatch(address)
    host, path = (
        (short["host"], short["path"])
        if short
        else (urlsplit(address).hostname, urlsplit(address).path)
    )
    if not host or (not short and urlsplit(address).scheme not in ("http", "https", "ssh", "git")):
        return None
    return f"https://{host}/{path.strip('/').removesuffix('.git')}"


if __name__ == "__main__":
    for name, value in variables().items():
        sys.stdout.write(f"{name}={value}\n")
