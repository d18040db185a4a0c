"""Programs kept on disk: `python -m jitney cache`, listed, removed, and made beforehand."""
