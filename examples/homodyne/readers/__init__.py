"""Readers of the files in which beamlines keep two-time correlations."""

from ._find import LAYOUTS as LAYOUTS
from ._find import opened as opened
from ._reader import Bin as Bin
from ._reader import Pairs as Pairs
from ._reader import Reader as Reader
from ._tree import ReadError as ReadError
