"""Models as `.mod` files, the language of Dynare: macros, statements, expressions, leads and lags,
and what they make up.
"""

from ._reader import ModFile as ModFile
from ._reader import parse_mod as parse_mod
from ._reader import read_mod as read_mod
