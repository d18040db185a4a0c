"""What is saved for the backward pass and what is computed again: found in the program, measured by the compiler."""

from ._choice import Chosen as Chosen
from ._choice import Nothing as Nothing
from ._choice import choose as choose
from ._choice import flops_text as flops_text
from ._choice import frontier_of as frontier_of
from ._choice import not_fitting as not_fitting
from ._flat import Flat as Flat
from ._flat import Step as Step
from ._flat import flattened as flattened
from ._flops import of_equation as of_equation
from ._option import EVERYTHING as EVERYTHING
from ._option import Option as Option
from ._problem import Point as Point
from ._problem import Problem as Problem
from ._problem import unsupported as unsupported
