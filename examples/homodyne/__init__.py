"""X-ray photon correlation: fits of the two-time model to more points than fit into memory."""

<<<<<<< HEAD
from ._data import Data as Data
from ._fit import Fit as Fit
from ._fit import Journal as Journal
from ._fit import chunked as chunked
from ._fit import fit as fit
from ._fit import in_memory as in_memory
from ._fit import streamed as streamed
from .model import NAMES as NAMES
from .model import Parameters as Parameters
from .model import Setup as Setup
=======
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
from examples.homodyne._synthetic import synthetic as synthetic
from examples.homodyne.model import NAMES as NAMES
from examples.homodyne.model import Parameters as Parameters
from examples.homodyne.model import Setup as Setup
>>>>>>> 29ed68fc6cae2a64dd7440e5d3fb12a5caf70d93
