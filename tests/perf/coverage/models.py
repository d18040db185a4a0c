"""All models of the scoreboard."""

from __future__ import annotations

from . import (
    calls,
    calls_where_installed,
    dynamics,
    libraries,
    networks,
    probability,
    scripts_diffrax,
    scripts_equinox,
    scripts_graphs,
    scripts_numpyro,
    sequences,
)

ALL = tuple(
    model
    for part in (
        networks,
        sequences,
        probability,
        dynamics,
        scripts_equinox,
        scripts_diffrax,
        scripts_numpyro,
        scripts_graphs,
        libraries,
        calls,
        calls_where_installed,
    )
    for model in part.MODELS
)
