"""Rematerialisation and loop rolling: which residuals a backward pass saves, and which identical
layers become one `scan`.

    h = tanh (h @ w[0]); ...; h = tanh (h @ w[9])
        ->  a `Stack` of 10 identical layers (`layers`)
        ->  `remat="auto"`: `Option`s are compiled under `jax.checkpoint` until one fits
        ->  `roll="auto"`: one scan over w (`rolling`)

Both work on a `FlatProgram`, a jaxpr as one list of numbered steps with its calls inlined.
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .choice import Chosen as Chosen
    from .choice import NoneFits as NoneFits
    from .choice import choose as choose
    from .choice import frontier_of as frontier_of
    from .choice import not_fitting as not_fitting
    from .flops import flops_text as flops_text
    from .flops import of_equation as of_equation
    from .layer_scan import RolledFunction as RolledFunction
    from .option import EVERYTHING as EVERYTHING
    from .option import Option as Option
    from .problem import MeasuredOption as MeasuredOption
    from .problem import Problem as Problem
    from .problem import offload_obstacle as offload_obstacle
else:
    __getattr__, __dir__, __all__ = names(
        __name__,
        {
            "Chosen": "choice",
            "NoneFits": "choice",
            "choose": "choice",
            "flops_text": "flops",
            "frontier_of": "choice",
            "not_fitting": "choice",
            "of_equation": "flops",
            "EVERYTHING": "option",
            "Option": "option",
            "MeasuredOption": "problem",
            "Problem": "problem",
            "offload_obstacle": "problem",
            "RolledFunction": "layer_scan",
        },
    )
