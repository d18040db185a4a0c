"""Exceptions of jitney, all of them a `JitneyError`, and warnings, all of them a `JitneyWarning`.
Each has a code, which is an entry of docs/errors.md.
"""

import typing as _typing

from ._lazy import names as _names

if _typing.TYPE_CHECKING:
    from ._errors import AnnotationWarning as AnnotationWarning
    from ._errors import AxisError as AxisError
    from ._errors import BudgetError as BudgetError
    from ._errors import CacheWarning as CacheWarning
    from ._errors import ChunkWarning as ChunkWarning
    from ._errors import CompileError as CompileError
    from ._errors import ContractError as ContractError
    from ._errors import DataError as DataError
    from ._errors import DataWarning as DataWarning
    from ._errors import DerivativeError as DerivativeError
    from ._errors import DonationError as DonationError
    from ._errors import EagerWarning as EagerWarning
    from ._errors import ExportError as ExportError
    from ._errors import JitneyError as JitneyError
    from ._errors import JitneyWarning as JitneyWarning
    from ._errors import MeasurementWarning as MeasurementWarning
    from ._errors import MemoryWarning as MemoryWarning
    from ._errors import MeshError as MeshError
    from ._errors import NonFiniteError as NonFiniteError
    from ._errors import OptionError as OptionError
    from ._errors import PaddingWarning as PaddingWarning
    from ._errors import PrecisionError as PrecisionError
    from ._errors import PrecisionWarning as PrecisionWarning
    from ._errors import ProcessError as ProcessError
    from ._errors import RetraceWarning as RetraceWarning
    from ._errors import SettingWarning as SettingWarning
    from ._errors import StateError as StateError
    from ._errors import StaticError as StaticError
    from ._errors import TraceError as TraceError
    from ._errors import TransformWarning as TransformWarning
    from ._errors import UpdateWarning as UpdateWarning
    from ._errors import VerificationError as VerificationError
    from ._errors import VerificationWarning as VerificationWarning
else:
    __getattr__, __dir__, __all__ = _names(
        __name__,
        {
            "AnnotationWarning": "_errors",
            "AxisError": "_errors",
            "BudgetError": "_errors",
            "CacheWarning": "_errors",
            "ChunkWarning": "_errors",
            "CompileError": "_errors",
            "ContractError": "_errors",
            "DataError": "_errors",
            "DataWarning": "_errors",
            "DerivativeError": "_errors",
            "DonationError": "_errors",
            "EagerWarning": "_errors",
            "ExportError": "_errors",
            "JitneyError": "_errors",
            "JitneyWarning": "_errors",
            "MeasurementWarning": "_errors",
            "MemoryWarning": "_errors",
            "MeshError": "_errors",
            "NonFiniteError": "_errors",
            "OptionError": "_errors",
            "PaddingWarning": "_errors",
            "PrecisionError": "_errors",
            "PrecisionWarning": "_errors",
            "ProcessError": "_errors",
            "RetraceWarning": "_errors",
            "SettingWarning": "_errors",
            "StateError": "_errors",
            "StaticError": "_errors",
            "TraceError": "_errors",
            "TransformWarning": "_errors",
            "UpdateWarning": "_errors",
            "VerificationError": "_errors",
            "VerificationWarning": "_errors",
        },
        private=False,
    )
