"""Version of jitney, in a module of its own so that everything can import it."""

__version__ = "0.2.0"
