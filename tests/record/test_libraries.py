"""Installed packages are what they were, or a program that their code has traced is not run."""

import os
import sys
import types
from functools import wraps

import pytest

from jitney._owners import STARTED
from jitney._record.instructions import Codes
from jitney._record.libraries import Libraries

TEXT = """
from functools import wraps

def plain(x):
    return helper(x) * NUMBER + Kind().double(x) + wrapped(x) + len(x)

def helper(x):
    return x

def other(x):
    return x

@wraps(helper)
def wrapped(x):
    return x

class Kind:
    def double(self, x):
        return 2 * x

NUMBER = 2.0
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that lies among installed packages, written before this process began."""
    file = tmp_path / "site-packages" / "somewhere.py"
    file.parent.mkdir()
    file.write_text(TEXT)
    os.utime(file, ns=(STARTED - 10**9, STARTED - 10**9))
    made = types.ModuleType("somewhere")
    made.__file__ = str(file)
    exec(compile(TEXT, str(file), "exec"), vars(made))
    monkeypatch.setitem(sys.modules, "somewhere", made)
    return made


@pytest.fixture
def ran(module):
    """What is noted where `plain` and `Kind.double` ran."""
    codes = Codes()
    codes.add([module.plain.__code__, module.Kind.double.__code__], "somewhere")
    return Libraries.of(codes)


def another(x):
    return x


def wrapping(module):
    @wraps(module.helper)
    def helper(x):
        return x

    return helper


PATCHES = {
    "a function": lambda module: setattr(module, "helper", module.other),
    "a function that wraps it": lambda module: setattr(module, "helper", wrapping(module)),
    "a function that remembers what it wraps": lambda module: setattr(
        module.helper, "__wrapped__", another
    ),
    "a function that is gone": lambda module: delattr(module, "helper"),
    "a method": lambda module: setattr(module.Kind, "double", another),
    "a number": lambda module: setattr(module, "NUMBER", 3.0),
    "a class": lambda module: setattr(
        module, "Kind", type("Kind", (), {"double": module.Kind.double})
    ),
    "an attribute of a class": lambda module: setattr(module.Kind, "more", 1),
    "a wrapped function": lambda module: setattr(module, "wrapped", another),
}


def test_what_is_not_patched_is_what_it_was(ran):
    """Nor is what no code names."""
    assert ran.first_change() is None
    sys.modules["somewhere"].other = another
    assert ran.first_change() is None


@pytest.mark.parametrize("patch", PATCHES)
def test_a_name_that_stands_for_something_else_is_seen(ran, module, patch):
    """Of a module or a class, by the place where it is written, its kind, what it wraps, or its
    value.
    """
    PATCHES[patch](module)
    assert ran.first_change() == "a name of somewhere stands for something else"


def test_a_file_that_is_written_anew_is_seen(ran, module):
    """By its time, even if that is later than the start of this process, which runs the older
    one.
    """
    os.utime(module.__file__, ns=(STARTED - 5, STARTED - 5))
    assert ran.first_change() == f"{module.__file__} has changed"
    later = Libraries({module.__file__: (len(TEXT), STARTED + 10**9)}, ())
    os.utime(module.__file__, ns=(STARTED + 10**9, STARTED + 10**9))
    assert later.first_change() == f"{module.__file__} was written since this process began"


def test_files_of_jitney_that_this_process_has_imported_are_noted(ran):
    """Whether they ran or not: one that is edited may plan and prove another program."""
    imported = {
        module.__file__
        for name, module in sys.modules.items()
        if name.startswith("jitney.") and getattr(module, "__file__", None)
    }
    assert len(imported) > 50
    assert imported <= ran.files.keys()
