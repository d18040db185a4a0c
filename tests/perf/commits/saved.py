"""The figures as two files of pytest-benchmark, which `pytest-benchmark compare` reads, and others
that know its JSON.

A round of such a file is a pair of processes. What pytest-benchmark does not know stands in
`extra_info`: the interval of the ratio, the verdict, counts.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jitney._measured.verdict import interval, judge_ratios, quartiles

from ..page import here
from .pairs import Figure, Outcome


def save(folder: Path, outcomes: Mapping[str, Outcome], commits: tuple[str, str]) -> list[Path]:
    """Write one file for each side, and give their names."""
    folder.mkdir(parents=True, exist_ok=True)
    about, files = here(), [folder / "against.json", folder / "this.json"]
    for side, (file, commit) in enumerate(zip(files, commits, strict=True)):
        benchmarks = [
            _benchmark(f"{name}, {of}", figure, outcome, side)
            for name, outcome in outcomes.items()
            for of, figure in outcome.figures.items()
        ]
        data = {
            "machine_info": _machine(about),
            "commit_info": {"id": commit, "dirty": commit.endswith("+")},
            "benchmarks": benchmarks,
            "datetime": datetime.now(UTC).isoformat(),
            "version": "5.0.0",
        }
        file.write_text(json.dumps(data, indent=1))
    return files


def _machine(about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "node": "",
        "processor": about["machine"],
        "machine": platform.machine(),
        "system": platform.system(),
        "release": platform.release(),
        "python_implementation": platform.python_implementation(),
        "python_version": about["python"],
        "jax": about["jax"],
        "load": about.get("load"),
        "cpu": {"brand_raw": about["machine"]},
    }


def _benchmark(name: str, figure: Figure, outcome: Outcome, side: int) -> dict[str, Any]:
    seconds = figure.this if side else figure.against
    found, verdict = interval(figure.ratios), judge_ratios(figure.ratios)
    extra = {
        "ratio_interval": None if found is None else list(found),
        "ratios": figure.ratios,
        "verdict": str(verdict),
        **{of: pair[side] for of, pair in outcome.counts.items()},
    }
    return {
        "group": None,
        "name": name,
        "fullname": f"tests/perf/commits/benches.py::{name}",
        "params": None,
        "param": None,
        "extra_info": extra,
        "options": {"disable_gc": True, "timer": "perf_counter", "warmup": False},
        "stats": statistics_of(seconds),
    }


def statistics_of(seconds: Sequence[float]) -> dict[str, Any]:
    """Those of pytest-benchmark."""
    q1, middle, q3 = quartiles(seconds)
    mean = statistics.fmean(seconds)
    deviation = statistics.stdev(seconds) if len(seconds) > 1 else 0.0
    near = [x for x in seconds if q1 - 1.5 * (q3 - q1) <= x <= q3 + 1.5 * (q3 - q1)]
    far = sum(abs(x - mean) > deviation for x in seconds)
    return {
        "min": min(seconds),
        "max": max(seconds),
        "mean": mean,
        "stddev": deviation,
        "rounds": len(seconds),
        "median": middle,
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": len(seconds) - len(near),
        "stddev_outliers": far,
        "outliers": f"{far};{len(seconds) - len(near)}",
        "ld15iqr": min(near),
        "hd15iqr": max(near),
        "ops": 1 / mean if mean else math.inf,
        "total": sum(seconds),
        "data": list(seconds),
        "iterations": 1,
    }
