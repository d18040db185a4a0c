"""Entries that jitney adds to the keys of JAX's caches: context values under which a trace runs.

JAX has each such value in every key, in order of creation. A later one changes all keys, and every
function traced before, those of the user included, is retraced. So all four are created together:
when jitney is imported if JAX is imported already, else with the first use of a name of jitney.
"""

from __future__ import annotations

from typing import Any

import jax

FRESH: Any = jax.make_user_context(None)
"""Context of a trace with symbolic sizes, in which all bodies run again."""
PLAIN: Any = jax.make_user_context(None)
"""Context of a call that is traced plainly inside of another trace."""
SERIALIZED: Any = jax.make_user_context(None)
"""Context of a trace whose program is cached for other processes. All bodies run again in it, so
that their reads are observed.
"""
WATCHED: Any = jax.make_user_context(None)
"""Context of a trace whose reads of objects are recorded. Bodies run again in it if they were
traced while other reads were recorded.
"""
