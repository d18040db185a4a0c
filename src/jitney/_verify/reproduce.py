"""Text of a `VerificationError`, and the script that shows the difference on its own.

The script uses only the public interface: it decorates the function with the same options, calls
it, and calls it once more in a second process with JITNEY_DISABLE=1, where jitney does nothing. The
function is imported where that is possible; else its source is copied.
"""

from __future__ import annotations

import cmath
import os
import pickle
import pprint
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from .._errors import VerificationError
from .._jax.mesh import current
from .._jax.trees import extended, issubdtype, words_of_keys
from .._jax.typed import Array
from .._signature.options import Options, script_texts
from .._stages.derivatives.arguments import COTANGENT
from .._stages.derivatives.derive import Derived, without_directions
from .._version import __version__
from .difference import Difference, numbers
from .shrunk import first_operation, shrunk
from .source import SourceText

if TYPE_CHECKING:
    from .verification import Verification


def failure(
    verification: Verification,
    arrays: Sequence[Array],
    difference: Difference,
    said: str,
) -> VerificationError:
    """Return the error of a call whose result differs from the plain one: with a smaller call, the
    operation, and the script.
    """
    # The smaller call may differ in another element.
    smaller, cut = shrunk(verification, arrays)
    if cut:
        difference = verification.difference(smaller, verification.again(smaller))[0] or difference
    operation = first_operation(verification, smaller)
    path = _write(verification, smaller, difference)
    core = verification.body.core

    changes = ", ".join(map(str, verification.changes))
    sizes = ", ".join(f"{name}={size}" for name, size in cut.items())
    at = f" Sizes are cut to {sizes}." if cut else ""
    where = f" The first operation that differs is {operation}." if operation else ""
    note = said.partition("; ")[2]
    error = VerificationError(
        core.where,
        f"{difference.text}.{where}{at}{f' {note}.' if note else ''}",
        f"Under {changes} a result is that of plain `jax.jit`, here up to"
        f" {difference.allowed:.3g}.",
        f"{path} shows it by itself: report it with that; {_meanwhile(verification)} until it is fixed.",
    )
    error.script = str(path)
    return error


def _meanwhile(verification: Verification) -> str:
    names = list(dict.fromkeys(change.option.partition("=")[0] for change in verification.changes))
    instead = {
        "jacobian": 'mode="forward"',
        "accumulate": "the plain gradient",
        "stream": "one call",
    }
    if names[0] in instead:
        return f"use {instead[names[0]]}"
    return f"leave out {names[0]!r}"


_SCRIPT = '''"""{title}

{found}
jax {jax}, jitney {jitney}, Python {python}. The second process runs with JITNEY_DISABLE=1, where jitney does nothing.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

{environment}
os.environ.pop("JITNEY_VERIFY", None)
sys.path[:0] = {path!r}

import jax
import jax.numpy as jnp
import numpy as np

import jitney

HERE = Path(__file__).parent
DATA = np.load(HERE / "arguments.npz")

{source}


def results():
    """All arrays of the result."""
{call}
    return [np.asarray(leaf, np.complex128 if jnp.iscomplexobj(leaf) else np.float64) for leaf in jax.tree.leaves(result)]


if "JITNEY_DISABLE" in os.environ:
    np.savez(sys.argv[1], *results())
else:
    subprocess.run([sys.executable, __file__, str(HERE / "plain.npz")], env={{**os.environ, "JITNEY_DISABLE": "1"}}, check=True)
    with np.load(HERE / "plain.npz") as plain:
        for ours, name in zip(results(), plain.files, strict=True):
            print("jitney:", ours, "plain:", plain[name], "largest difference:", np.max(np.abs(ours - plain[name]), initial=0))
'''


def _write(
    verification: Verification,
    arrays: Sequence[Array],
    difference: Difference,
) -> Path:
    """Write the script into a new folder, with the arguments next to it, and return its path."""
    core = verification.body.core
    folder = Path(tempfile.mkdtemp(prefix="jitney-verify-"))

    # Bind the flat arrays back to the arguments of the user's function.
    given = _Arguments()
    values = verification.body.layout.values(arrays, verification.body.statics)
    args, kwargs = core.binder.call(lambda *args, **kwargs: (args, kwargs), values)
    fn = core.fn()
    source = SourceText(fn.fn if isinstance(fn, Derived) else fn)
    settings = _settings()
    environment = [
        f"os.environ.setdefault({name!r}, {value!r})" for name, value in _environment().items()
    ]
    call = _call(
        verification,
        source.name,
        given,
        args,
        kwargs,
    )

    text = _SCRIPT.format(
        title=f"{core.where}: another result than plain jax.jit.",
        found=difference.text,
        jax=jax.__version__,
        jitney=__version__,
        python=sys.version.split()[0],
        environment="\n".join(environment),
        path=source.paths,
        source=f"{source.text}\n\n{settings}".rstrip(),
        call="\n".join(f"    {line}" for line in call),
    )

    script = folder / "reproduce.py"
    script.write_text(text)
    np.savez(folder / "arguments.npz", **given.arrays)
    if given.pickled:
        (folder / "arguments.pkl").write_bytes(pickle.dumps(given.pickled))
    return script


def _environment() -> dict[str, str]:
    variables = {
        name: os.environ[name] for name in ("XLA_FLAGS", "JAX_PLATFORMS") if name in os.environ
    }
    flags, devices = variables.get("XLA_FLAGS", ""), jax.device_count()

    # The second process needs as many devices as this one pretends to have.
    if devices > 1 and jax.default_backend() == "cpu" and "host_platform_device_count" not in flags:
        variables["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}".strip()
    return variables


def _settings() -> str:
    """Return lines with the settings of JAX that change numbers."""
    options = jax.config
    names = ("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion")
    values = [(name, getattr(options, name)) for name in names]
    return "\n".join(
        f"jax.config.update({name!r}, {getattr(value, 'value', value)!r})" for name, value in values
    )


def _call(
    verification: Verification,
    name: str,
    given: _Arguments,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> list[str]:
    """Return the lines that compute `result`."""
    core = verification.body.core
    fn = core.fn()
    options = verification.body.options
    if isinstance(fn, Derived):
        # The script decorates the function, which has no directions.
        options = replace(options, vmap=without_directions(options.vmap, fn.directions))
    keywords = [f"{key}={value}" for key, value in script_texts(_in_script(options)).items()]
    lines = [f"program = jitney.optimize({', '.join([name, *keywords])})"]
    stream = next((change for change in verification.changes if change.option == "stream"), None)

    # A derivative of the program: directions are passed as `tangents`.
    if isinstance(fn, Derived):
        lines += _derivative(fn, core.options)
        directions = {
            name.removeprefix("tangent_of_"): kwargs[name]
            for name in fn.directions
            if name != COTANGENT
        }
        kwargs = {
            key: value
            for key, value in kwargs.items()
            if key not in fn.directions or key == COTANGENT
        }
        if directions:
            kwargs["tangents"] = next(iter(directions.values())) if fn.single else directions

    values = [given.text(value) for value in args]
    values += [f"{key}={given.text(value)}" for key, value in kwargs.items()]
    if stream is not None:
        chunk = dict(verification.options.chunk)
        values += [f"chunk={chunk!r}", "progress=False"]
        return [*lines, f"result = program.stream({', '.join(values)}).result"]
    return [*lines, f"result = program({', '.join(values)})"]


def _derivative(fn: Derived, options: Options) -> list[str]:
    wrt = fn.wrt[0] if fn.wrt is not None and fn.single else fn.wrt
    if options.accumulate:
        ((axis, microbatch),) = options.chunk
        arguments = [
            "program",
            f"axis={axis!r}",
            f"microbatch={microbatch!r}",
            f"wrt={wrt!r}",
            f"has_aux={fn.aux!r}",
        ]
        return [f"program = jitney.accumulate({', '.join(arguments)})"]

    arguments = ["program"]
    if wrt is not None:
        arguments.append(f"wrt={wrt!r}")
    elif fn.skip:
        arguments.append(f"skip={fn.skip!r}")
    arguments += [f"mode={fn.mode!r}", f"sparse={fn.sparse!r}"]
    return [f"program = jitney.lazy_derivatives({', '.join(arguments)}).{fn.what}"]


def _in_script(options: Options) -> Options:
    """Return the options as a script of its own needs them."""
    # `jitney.accumulate` takes its axis itself.
    if options.accumulate:
        options = options.without("chunk")
    # The mesh of a context is written too.
    mesh = current(options.mesh) if options.shard is not None else None
    return replace(options, mesh=mesh, shard=None if mesh is None else options.shard)


class _Arguments:
    """Arguments as expressions of a script, with the arrays and pickled objects that these read."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self.pickled: dict[str, object] = {}

    def text(self, value: object) -> str:
        """Return an expression for the value."""
        if isinstance(value, (jax.Array, np.ndarray)):
            return self._array(value)
        if value is None or type(value) in (bool, int, float, complex, str):
            # `repr` of NaN and infinities is not an expression.
            whole = not isinstance(value, (float, complex)) or cmath.isfinite(value)
            return repr(value) if whole else f"{type(value).__name__}({str(value)!r})"
        if type(value) in (list, tuple, dict):
            return self._container(value)
        return self._object(value)

    def _container(self, value: Any) -> str:
        if type(value) is dict:
            entries = [f"{key!r}: {self.text(item)}" for key, item in value.items()]
            return f"{{{', '.join(entries)}}}"
        parts = "".join([f"{self.text(item)}, " for item in value])
        return f"[{parts}]" if type(value) is list else f"({parts})"

    def _array(self, array: Array) -> str:
        name = f"a{len(self.arrays)}"
        if issubdtype(array.dtype, extended):
            self.arrays[name] = words_of_keys(array)
            impl = str(jax.random.key_impl(array))
            return f"jax.random.wrap_key_data(DATA[{name!r}], impl={impl!r})"

        # NumPy files hold no bfloat16 or float8: such arrays are stored in a wider dtype, and cast
        # in the script.
        host = np.asarray(array)
        wide = host if host.dtype.kind in "biufc" else numbers(host)
        self.arrays[name] = wide
        if not isinstance(array, jax.Array):
            return f"DATA[{name!r}]" if wide is host else f"DATA[{name!r}].astype(jnp.{host.dtype})"
        # A weakly typed scalar is written as a Python number, which is one.
        if bool(array.weak_type) and not array.shape:
            return repr(array.item())
        dtype = "bool_" if host.dtype == np.bool_ else host.dtype
        return f"jnp.asarray(DATA[{name!r}], jnp.{dtype})"

    def _object(self, value: object) -> str:
        name = f"p{len(self.pickled)}"
        try:
            pickle.dumps(value)
        except (pickle.PicklingError, TypeError, AttributeError):
            return f"...  # {pprint.saferepr(value)[:200]}: cannot be kept, make it here"
        self.pickled[name] = value
        return f"pickle.loads((HERE / 'arguments.pkl').read_bytes())[{name!r}]"
