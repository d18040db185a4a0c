"""Make numerical JAX code fast without rewriting it."""

from ._accumulate import accumulate as accumulate
from ._buckets import Bucket as Bucket
from ._cache import CacheFacts as CacheFacts
from ._cache import configure as configure
from ._derivatives import Derivative as Derivative
from ._derivatives import lazy_derivatives as lazy_derivatives
from ._errors import AxisError as AxisError
from ._errors import ContractError as ContractError
from ._errors import DerivativeError as DerivativeError
from ._errors import DonationError as DonationError
from ._errors import JitneyError as JitneyError
from ._errors import JitneyWarning as JitneyWarning
from ._errors import NonFiniteError as NonFiniteError
from ._errors import OptionError as OptionError
from ._errors import PrecisionError as PrecisionError
from ._errors import StateError as StateError
from ._errors import StaticError as StaticError
from ._errors import TraceError as TraceError
from ._events import Stats as Stats
from ._evidence import Deviation as Deviation
from ._evidence import PrecisionReport as PrecisionReport
from ._evidence import Product as Product
from ._evidence import precision_report as precision_report
from ._facts import AxisFacts as AxisFacts
from ._facts import axes as axes
from ._host import Fetch as Fetch
from ._host import host as host
from ._optimize import optimize as optimize
from ._precision import LossScale as LossScale
from ._program import Program as Program
from ._report import Report as Report
from ._shared import shared as shared
from ._state import DerivedField as DerivedField
from ._state import State as State
from ._state import derived as derived
from ._strategy import Strategy as Strategy
from ._strategy import Way as Way
from ._strategy import strategy as strategy
from ._stream import Streamed as Streamed
from ._stream import StreamStats as StreamStats
from ._stream import stream as stream

__version__ = "0.1.0"
