"""Programs with symbolic sizes, made of traces at known sizes."""
