"""The options of `@optimize`: validated once, at decoration, and frozen.

`table.py` has each option in one place; `readers.py` and `writers.py` turn what an author writes
into what is stored, and back; `read.py` reads all keywords of a decoration.
"""

from ..._extent import AUTO as AUTO
from .option import EQUAL as EQUAL
from .option import SUMS_ROUNDED as SUMS_ROUNDED
from .plan_lines import USUAL_ERROR as USUAL_ERROR
from .read import falls_back as falls_back
from .read import read_options as read_options
from .readers import fail as fail
from .readers import read_shard as read_shard
from .spellings import Names as Names
from .table import NAMES as NAMES
from .table import ON_ERROR as ON_ERROR
from .table import OPTIONS as OPTIONS
from .table import OptionKeywords as OptionKeywords
from .table import Options as Options
from .values import DEFAULT as DEFAULT
from .values import EVERY as EVERY
from .values import FSDP as FSDP
from .values import MAX_VMAP_AXES as MAX_VMAP_AXES
from .values import MEASURED as MEASURED
from .values import MOST_WORKERS as MOST_WORKERS
from .values import OPTIONAL as OPTIONAL
from .values import PRECISIONS as PRECISIONS
from .values import PRODUCT_TYPES as PRODUCT_TYPES
from .values import CompileLimit as CompileLimit
from .values import Sharding as Sharding
from .values import VmapAxis as VmapAxis
from .values import Wrt as Wrt
from .values import is_measured as is_measured
from .values import policy_of as policy_of
from .values import tolerance_of as tolerance_of
from .writers import bucket_spelling as bucket_spelling
from .written import option_texts as option_texts
from .written import script_texts as script_texts
