"""What is saved for the backward pass and what is computed again: found in the program, measured by the compiler."""

from .choice import Chosen as Chosen
from .choice import Nothing as Nothing
from .choice import choose as choose
from .choice import flops_text as flops_text
from .choice import frontier_of as frontier_of
from .choice import not_fitting as not_fitting
from .flat import FlatProgram as FlatProgram
from .flat import Step as Step
from .flat import flattened as flattened
from .flops import of_equation as of_equation
from .option import EVERYTHING as EVERYTHING
from .option import Option as Option
from .problem import Point as Point
from .problem import Problem as Problem
from .problem import unsupported as unsupported
