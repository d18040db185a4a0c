"""Set up every test, of the package and of the examples: no user folder is touched, and runs repeat."""

import os
import tempfile

import hypothesis

# Before JAX or jitney is imported anywhere. A worker of pytest-xdist inherits the controller's folder.
if "JITNEY_TEST_CACHE" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="jitney-tests-")
    os.environ["JITNEY_TEST_CACHE"] = _folder.name
os.environ["JITNEY_CACHE_DIR"] = os.environ["JITNEY_TEST_CACHE"]
# JITNEY_VERIFY stays: the tests run under it too, each new program compared with the plain function.
for _name in ("JITNEY_CACHE", "JITNEY_DEBUG_NANS", "JITNEY_DISABLE", "JAX_COMPILATION_CACHE_DIR"):
    os.environ.pop(_name, None)
os.environ.setdefault("MPLBACKEND", "agg")

# `--hypothesis-profile=full` on the command line wins over the default below.
_compiles = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
hypothesis.settings.register_profile("ci", derandomize=True, max_examples=25, deadline=None, suppress_health_check=_compiles)
hypothesis.settings.register_profile("full", max_examples=1000, deadline=None, suppress_health_check=_compiles, print_blob=True)
hypothesis.settings.load_profile("ci")
