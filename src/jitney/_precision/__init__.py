"""Numbers in a low type where it is cheap and harmless: the autocast, its policies, and the evidence for them."""

from .fed_by import Label as Label
from .fed_by import Site as Site
from .loss_scale import LossScale as LossScale
from .low_products import Tally as Tally
from .low_products import autocast as autocast
from .low_products import tallies as tallies
from .policy import FULL as FULL
from .policy import LOW as LOW
from .policy import Policy as Policy
from .policy import is_line as is_line
from .policy import tokens as tokens
from .products import SOLVERS as SOLVERS
from .products import breaks_low as breaks_low
from .products import elsewhere as elsewhere
from .products import has_kernels as has_kernels
from .replay import Probe as Probe
from .replay import in_double as in_double
