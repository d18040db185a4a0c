"""Readers of the files in which beamlines keep two-time correlations."""

from examples.homodyne.readers._find import LAYOUTS as LAYOUTS
from examples.homodyne.readers._find import opened as opened
from examples.homodyne.readers._reader import Bin as Bin
from examples.homodyne.readers._reader import Pairs as Pairs
from examples.homodyne.readers._reader import Reader as Reader
from examples.homodyne.readers._tree import ReadError as ReadError
