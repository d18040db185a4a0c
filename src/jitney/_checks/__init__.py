"""Equinox's run-time checks as data: the program returns the number of the first check that failed.

    def f(x):                                  a, flag = f(x)
        x = eqx.error_if(x, x < 0, "a")   ->   # flag == 0: no check has failed
        return jnp.sqrt(x)                     # else `CheckTable.fail(int(flag))` raises
                                               # Equinox's error

`evaluate_flagged` evaluates a jaxpr in this form (`flag_interpreter.py`, with its loops in
`flagged_loops.py`), on the liveness of `_jax/programs/liveness.py`; `flags.py` has the number.
`CheckTable` numbers the checks of a function. `PendingFlags` holds the numbers of calls under
`runtime_checks="later"` until they are read. `with_checks` turns a number back into checks where an
exported program is run.
"""

from .flag_interpreter import Unflaggable as Unflaggable
from .flag_interpreter import evaluate_flagged as evaluate_flagged
from .outstanding import OUTSTANDING as OUTSTANDING
from .table import CheckTable as CheckTable
from .table import split_code as split_code
from .table import with_checks as with_checks
