"""JAX's persistent compilation cache: its switch (`cache.py`), the checks of its folder
and its limit of size (`folder.py`), checksums of entries (`entries.py`), and jitney's own entries
in the same folder (`own_entries.py`).

    ensure()      # before the first compile: sets `jax_compilation_cache_dir`, sweeps the folder
    facts()       # CacheFacts(enabled=True, directory=..., size_limit=2147483648, reason=...)
"""
