"""Run-time checks of Equinox as data: a program with its checks made numbers that it returns."""

from .again import with_checks as with_checks
from .flagged import Kept as Kept
from .flagged import flagged as flagged
from .outstanding import OUTSTANDING as OUTSTANDING
from .table import Table as Table
from .table import parted as parted
