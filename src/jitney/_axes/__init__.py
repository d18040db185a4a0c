"""What a body does along its named axes: proven on a program with symbolic sizes, and carried out on padded ones."""

from ._chunked import Chunked as Chunked
from ._chunked import Known as Known
from ._chunked import run_chunked as run_chunked
from ._devices import Devices as Devices
from ._devices import check_order as check_order
from ._devices import told as told
from ._extent import evaluate as evaluate
from ._extent import is_symbolic as is_symbolic
from ._facts import demand as demand
from ._facts import uses_of as uses_of
from ._padded import run_padded as run_padded
from ._passes import Passes as Passes
from ._passes import bytes_per_element as bytes_per_element
from ._passes import plan_passes as plan_passes
from ._refusal import Refused as Refused
from ._rule import Use as Use
from ._spread import spread as spread
from ._trace import Traced as Traced
from ._trace import at_any_size as at_any_size
from ._trace import ranges_at_hand as ranges_at_hand
from ._trace import trace as trace
