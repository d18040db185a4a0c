"""What a body does along its named axes: proven on a program with symbolic sizes, and carried out on padded ones."""

from .chunked import Chunked as Chunked
from .chunked import KnownValues as KnownValues
from .chunked import run_chunked as run_chunked
from .dims import evaluate as evaluate
from .dims import is_symbolic as is_symbolic
from .over_devices import Devices as Devices
from .over_devices import check_order as check_order
from .over_devices import told as told
from .padded import pushed_forward as pushed_forward
from .padded import run_differentiable as run_differentiable
from .padded import run_padded as run_padded
from .passes import Passes as Passes
from .passes import bytes_per_element as bytes_per_element
from .passes import plan_passes as plan_passes
from .refusal import Refused as Refused
from .rule import Use as Use
from .spread import spread as spread
from .uses import demand as demand
from .uses import uses_of as uses_of
from .witness.symbolic_trace import SymbolicProgram as SymbolicProgram
from .witness.symbolic_trace import at_any_size as at_any_size
from .witness.symbolic_trace import ranges_at_hand as ranges_at_hand
from .witness.symbolic_trace import trace as trace
