"""X-ray photon correlation: fits of the two-time model to more points than fit into memory."""

from ._data import Data as Data
from ._fit import Fit as Fit
from ._fit import Journal as Journal
from ._fit import chunked as chunked
from ._fit import fit as fit
from ._fit import in_memory as in_memory
from ._fit import streamed as streamed
from ._measurement import Measurement as Measurement
from ._mode_fit import ModeFit as ModeFit
from ._mode_fit import fit_mode as fit_mode
from ._modes import MODES as MODES
from ._posterior import Posterior as Posterior
from ._posterior import posterior as posterior
from ._synthetic import synthetic as synthetic
from ._together import Together as Together
from .model import NAMES as NAMES
from .model import Parameters as Parameters
from .model import Setup as Setup
