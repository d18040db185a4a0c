"""X-ray photon correlation: fits of the two-time model to more points than fit into memory."""

from examples.homodyne._data import Data as Data
from examples.homodyne._fit import Fit as Fit
from examples.homodyne._fit import Journal as Journal
from examples.homodyne._fit import chunked as chunked
from examples.homodyne._fit import fit as fit
from examples.homodyne._fit import in_memory as in_memory
from examples.homodyne._fit import streamed as streamed
from examples.homodyne._measurement import Measurement as Measurement
from examples.homodyne._mode_fit import ModeFit as ModeFit
from examples.homodyne._mode_fit import fit_mode as fit_mode
from examples.homodyne._modes import MODES as MODES
from examples.homodyne._posterior import Posterior as Posterior
from examples.homodyne._posterior import posterior as posterior
from examples.homodyne._synthetic import synthetic as synthetic
from examples.homodyne.model import NAMES as NAMES
from examples.homodyne.model import Parameters as Parameters
from examples.homodyne.model import Setup as Setup
