"""SciPy's own tests of `least_squares` (Trust Region Reflective) and `curve_fit`, run on the
drop-in.

They are read from the installed SciPy, with its two functions replaced by ours. What fails is in
`CHOICES` with its reason, and fails for sure: a test that begins to pass is reported. The README's
table is `table()`.
"""

import importlib.util
import inspect
import sys
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace

import pytest
import scipy.optimize

from examples.trf import drop_in

CHOICES = MappingProxyType(
    {
        "TestTRF-test_nfev": "counts calls: a function is called with numbers once and then traced",
        "TestCurveFit-test_gh4555": "an eigenvalue of an almost singular covariance is below -0.01",
        "TestCurveFit-test_gh4555b": "the covariance is 5e-7 from the reference; 2e-7 is allowed",
    }
)
FOLDER = Path(scipy.optimize.__file__).parent / "tests"


class Marks:
    """Those that change a test; the others only SciPy's configuration knows."""

    def __getattr__(self, name):
        if name in ("parametrize", "filterwarnings"):
            return getattr(pytest.mark, name)

        def mark(*given, **options):
            bare = len(given) == 1 and callable(given[0]) and not options
            return given[0] if bare else lambda test: test

        return mark


def scipys(name):
    """A module of SciPy's tests, under a name of its own, with our functions in it."""
    path = FOLDER / f"{name}.py"
    if not path.exists():
        return None
    spec = importlib.util.spec_from_file_location(f"scipys_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    plain = ModuleType("pytest")
    plain.__dict__.update({**vars(pytest), "mark": Marks()})
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "pytest", plain)
        spec.loader.exec_module(module)
    for function in ("curve_fit", "least_squares"):
        if hasattr(module, function):
            setattr(module, function, getattr(drop_in, function))
    if isinstance(getattr(module, "optimize", None), ModuleType):
        changed = {**vars(scipy.optimize), "curve_fit": drop_in.curve_fit}
        module.optimize = SimpleNamespace(**changed)
    return module


def cases(home):
    """Each test of a class or a module, once for each of its sets of arguments."""
    for name, test in inspect.getmembers(home, inspect.isfunction):
        if name.startswith("test_") and not name.endswith("_lm"):
            for given in arguments(test):
                place = home.__name__.removeprefix("scipys_")
                label = "-".join([place, name, *map(str, given.values())])
                marks = [pytest.mark.rest]
                if label in CHOICES:
                    marks.append(pytest.mark.xfail(reason=CHOICES[label], strict=True))
                yield pytest.param(home, name, given, id=label, marks=marks)


def arguments(test):
    """What its marks give it."""
    made = [{}]
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            name, values = mark.args
            made = [{**one, name: value} for one in made for value in values]
    return made


SQUARES, MINPACK = scipys("test_least_squares"), scipys("test_minpack")
ALL = [
    *(cases(SQUARES) if SQUARES else ()),
    *(cases(SQUARES.TestTRF) if SQUARES else ()),
    *(cases(MINPACK.TestCurveFit) if MINPACK else ()),
]


def table():
    """A row for each of SciPy's suites, and one for each failure: what the README shows."""
    suites = {name: [] for name in ("test_least_squares", "TestTRF", "TestCurveFit")}
    for one in ALL:
        suites[one.values[0].__name__.removeprefix("scipys_")].append(one.id)
    rows = ["| SciPy's suite | pass | fail | why |", "|---|---|---|---|"]
    for suite, labels in suites.items():
        failed = [label for label in labels if label in CHOICES]
        rows.append(f"| `{suite}` | {len(labels) - len(failed)} | {len(failed)} | |")
        rows += [f"| `{of.partition('-')[2]}` | | | {CHOICES[of]} |" for of in failed]
    return "\n".join(rows)


@pytest.mark.skipif(
    not scipy.__version__.startswith(("1.17.", "1.18.")),
    reason="the table is of SciPy 1.17 and 1.18",
)
def test_the_readme_has_the_table():
    """Its counts and reasons are those of `CHOICES` and of the installed SciPy."""
    readme = (Path(drop_in.__file__).parent / "README.md").read_text()
    assert table() in readme


@pytest.mark.filterwarnings("ignore::examples.trf.drop_in.NotTraced")
@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.parametrize(("home", "name", "given"), ALL)
def test_scipys(home, name, given):
    """It passes with the drop-in as with SciPy's own functions."""
    if isinstance(home, ModuleType):
        getattr(home, name)(**given)
        return
    self = home()
    getattr(self, "setup_method", lambda: None)()
    getattr(self, name)(**given)
