"""Models as `.mod` files, the language of Dynare: macros, statements, expressions, leads and lags,
and what they make up.
"""

from examples.equilibrium.mod._reader import ModFile as ModFile
from examples.equilibrium.mod._reader import parse_mod as parse_mod
from examples.equilibrium.mod._reader import read_mod as read_mod
