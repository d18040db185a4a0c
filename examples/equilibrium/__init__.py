"""Dynamic macroeconomic models: steady states, linear solutions and perfect-foresight paths, from
equations on named vectors.
"""

from examples.equilibrium._bounded import Bounded as Bounded
from examples.equilibrium._bounded import Constraint as Constraint
from examples.equilibrium._bounded import bounded_path as bounded_path
from examples.equilibrium._bounded import bounded_simulation as bounded_simulation
from examples.equilibrium._conditional import conditional_path as conditional_path
from examples.equilibrium._fail import BlanchardKahn as BlanchardKahn
from examples.equilibrium._fail import DegenerateRoot as DegenerateRoot
from examples.equilibrium._fail import ModelError as ModelError
from examples.equilibrium._fail import NoPath as NoPath
from examples.equilibrium._fail import NoSteadyState as NoSteadyState
from examples.equilibrium._fail import NotSettled as NotSettled
from examples.equilibrium._fail import UnknownName as UnknownName
from examples.equilibrium._implicit import VERDICTS as VERDICTS
from examples.equilibrium._implicit import Solution as Solution
from examples.equilibrium._implicit import foresight as foresight
from examples.equilibrium._implicit import solution as solution
from examples.equilibrium._implicit import variable as variable
from examples.equilibrium._likelihood import log_likelihood as log_likelihood
from examples.equilibrium._linear import Linear as Linear
from examples.equilibrium._linear import impulse_response as impulse_response
from examples.equilibrium._linear import linearise as linearise
from examples.equilibrium._linear import verdict as verdict
from examples.equilibrium._model import Model as Model
from examples.equilibrium._moments import Moments as Moments
from examples.equilibrium._moments import moments as moments
from examples.equilibrium._path import Path as Path
from examples.equilibrium._path import perfect_foresight as perfect_foresight
from examples.equilibrium._second import Pruned as Pruned
from examples.equilibrium._second import Second as Second
from examples.equilibrium._second import pruned_moments as pruned_moments
from examples.equilibrium._second import second_order as second_order
from examples.equilibrium._second import simulate as simulate
from examples.equilibrium._steady import Steady as Steady
from examples.equilibrium._steady import at as at
from examples.equilibrium._steady import steady_state as steady_state
from examples.equilibrium._sweep import Draws as Draws
from examples.equilibrium._sweep import Sweep as Sweep
from examples.equilibrium._sweep import solutions as solutions
from examples.equilibrium._sweep import sweep as sweep
from examples.equilibrium._variables import Point as Point
from examples.equilibrium._variables import derived as derived
from examples.equilibrium.mod import ModFile as ModFile
from examples.equilibrium.mod import parse_mod as parse_mod
from examples.equilibrium.mod import read_mod as read_mod
