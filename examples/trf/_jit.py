"""The one place where this example takes its compiler from."""

from jitney import lazy_derivatives as lazy_derivatives
from jitney import optimize as optimize
from jitney.errors import DerivativeError as DerivativeError
