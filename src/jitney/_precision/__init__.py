"""Numbers in a low type where it is cheap and harmless: the autocast, its policies, and the evidence for them."""

from ._autocast import Tally as Tally
from ._autocast import autocast as autocast
from ._autocast import tallies as tallies
from ._loss_scale import LossScale as LossScale
from ._policy import FULL as FULL
from ._policy import LOW as LOW
from ._policy import Policy as Policy
from ._policy import is_line as is_line
from ._policy import tokens as tokens
from ._products import SOLVERS as SOLVERS
from ._products import breaks_low as breaks_low
from ._products import elsewhere as elsewhere
from ._products import has_kernels as has_kernels
from ._replay import Probe as Probe
from ._replay import in_double as in_double
from ._walk import Label as Label
from ._walk import Site as Site
