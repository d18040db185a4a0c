"""The one place where this example takes its compiler from."""

from jitney import optimize as optimize
