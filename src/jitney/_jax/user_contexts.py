"""What jitney adds to the keys of JAX's caches: values of its own that a trace stands under.

JAX has each such value in every key, by the order in which they were made. One that is made later
changes all keys, and whatever was traced before, the user's own functions too, is traced anew; so
they are made together, with the import of jitney where JAX is there already, and else with the
first of jitney's names.
"""

from __future__ import annotations

from typing import Any

import jax

_jax: Any = jax
FRESH: Any = _jax.make_user_context(None)
"""A trace with symbolic sizes, under which all bodies run again."""
PLAIN: Any = _jax.make_user_context(None)
"""A call that is traced plainly inside of another trace."""
KEPT: Any = _jax.make_user_context(None)
"""A trace whose program is kept for other processes, under which all bodies run again, so that what
they read is seen.
"""
WATCHED: Any = _jax.make_user_context(None)
"""A trace whose reads of objects are noted, under which bodies run again that were traced while
others were noted.
"""
