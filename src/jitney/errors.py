"""Exceptions of jitney, all of them a `JitneyError`, and its warning. Each has a code, which is an
entry of docs/errors.md.
"""

import typing as _typing

from ._lazy import names as _names

if _typing.TYPE_CHECKING:
    from ._errors import AxisError as AxisError
    from ._errors import BudgetError as BudgetError
    from ._errors import CompileError as CompileError
    from ._errors import ContractError as ContractError
    from ._errors import DataError as DataError
    from ._errors import DerivativeError as DerivativeError
    from ._errors import DonationError as DonationError
    from ._errors import ExportError as ExportError
    from ._errors import JitneyError as JitneyError
    from ._errors import JitneyWarning as JitneyWarning
    from ._errors import MeshError as MeshError
    from ._errors import NonFiniteError as NonFiniteError
    from ._errors import OptionError as OptionError
    from ._errors import PrecisionError as PrecisionError
    from ._errors import ProcessError as ProcessError
    from ._errors import StateError as StateError
    from ._errors import StaticError as StaticError
    from ._errors import TraceError as TraceError
    from ._errors import VerificationError as VerificationError
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "AxisError": "_errors",
            "BudgetError": "_errors",
            "CompileError": "_errors",
            "ContractError": "_errors",
            "DataError": "_errors",
            "DerivativeError": "_errors",
            "DonationError": "_errors",
            "ExportError": "_errors",
            "JitneyError": "_errors",
            "JitneyWarning": "_errors",
            "MeshError": "_errors",
            "NonFiniteError": "_errors",
            "OptionError": "_errors",
            "PrecisionError": "_errors",
            "ProcessError": "_errors",
            "StateError": "_errors",
            "StaticError": "_errors",
            "TraceError": "_errors",
            "VerificationError": "_errors",
        },
        private=False,
    )
