"""Dynamic macroeconomic models: steady states, linear solutions and perfect-foresight paths, from
equations on named vectors.
"""

from ._bounded import Bounded as Bounded
from ._bounded import Constraint as Constraint
from ._bounded import bounded_path as bounded_path
from ._bounded import bounded_simulation as bounded_simulation
from ._conditional import conditional_path as conditional_path
from ._fail import BlanchardKahn as BlanchardKahn
from ._fail import DegenerateRoot as DegenerateRoot
from ._fail import ModelError as ModelError
from ._fail import NoPath as NoPath
from ._fail import NoSteadyState as NoSteadyState
from ._fail import NotSettled as NotSettled
from ._fail import UnknownName as UnknownName
from ._implicit import VERDICTS as VERDICTS
from ._implicit import Solution as Solution
from ._implicit import foresight as foresight
from ._implicit import solution as solution
from ._implicit import variable as variable
from ._likelihood import log_likelihood as log_likelihood
from ._linear import Linear as Linear
from ._linear import impulse_response as impulse_response
from ._linear import linearise as linearise
from ._linear import verdict as verdict
from ._model import Model as Model
from ._moments import Moments as Moments
from ._moments import moments as moments
from ._path import Path as Path
from ._path import perfect_foresight as perfect_foresight
from ._second import Pruned as Pruned
from ._second import Second as Second
from ._second import pruned_moments as pruned_moments
from ._second import second_order as second_order
from ._second import simulate as simulate
from ._steady import Steady as Steady
from ._steady import at as at
from ._steady import steady_state as steady_state
from ._sweep import Draws as Draws
from ._sweep import Sweep as Sweep
from ._sweep import solutions as solutions
from ._sweep import sweep as sweep
from ._variables import Point as Point
from ._variables import derived as derived
from .mod import ModFile as ModFile
from .mod import parse_mod as parse_mod
from .mod import read_mod as read_mod
