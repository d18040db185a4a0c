"""Trees and layers over devices, and what comes back to the host."""
