"""What pages print, and what the four ports promise."""

from __future__ import annotations

from tests.mutations._mutation import Mutation

_BOUNDS = "examples/trf/tests/test_bounds.py::test_"
_SOLUTIONS = "examples/equilibrium/tests/test_solutions.py::test_"
_TRUTH = "examples/equilibrium/tests/test_truth.py::test_"
_FIT = "examples/homodyne/tests/test_fit.py::test_"
_MODEL = "examples/homodyne/tests/test_model.py::test_"
_EXPERT = "examples/surrogate/tests/test_expert.py::test_"
_STEP = "examples/surrogate/tests/test_step.py::test_"
_TRAIN = "examples/surrogate/tests/test_train.py::test_"
_API = "examples/trf/tests/test_api.py::test_"
_LOSSES = "examples/trf/tests/test_losses.py::test_"
_METHOD = "examples/trf/tests/test_method.py::test_"
_NIST = "examples/trf/tests/test_nist.py::test_"
_CONTRIBUTING = "tests/test_contributing.py::test_"
_DOCS = "tests/test_docs.py::test_"

PAGES = [
    Mutation(
        "the quickstart prints another number",
        "docs/quickstart.md",
        "0.36787945\n```",
        "0.36787946\n```",
        (f"{_DOCS}code_of_a_page_runs[docs/quickstart.md]",),
    ),
    Mutation(
        "the quickstart shows another message",
        "docs/quickstart.md",
        "Fix: pass equal sizes, or rename the axis in one annotation.",
        "Fix: pass equal sizes.",
        (f"{_DOCS}code_of_a_page_runs[docs/quickstart.md]",),
    ),
    Mutation(
        "the first block of the README compiles nothing ahead",
        "README.md",
        'residual.compile(0.5, t, sizes={"fit": 8})',
        'residual.compile(0.5, sizes={"fit": 8, "points": 100})',
        (f"{_DOCS}what_the_readme_compiles_ahead_is_what_its_calls_use",),
    ),
    Mutation(
        "a page of an option refuses something else",
        "docs/options/contracts.md",
        "Every argument annotated with 'n' must agree on it.",
        "All arguments annotated with 'n' must agree on it.",
        (f"{_DOCS}code_of_a_page_runs[docs/options/contracts.md]",),
    ),
    Mutation(
        "an option has no page in the menu",
        "mkdocs.yml",
        "options/remat.md\n",
        "options/remats.md\n",
        (f"{_DOCS}every_option_has_its_page[remat]",),
    ),
    Mutation(
        "a variable of the environment is in no table",
        "docs/environment.md",
        "`JITNEY_VERIFY`",
        "`JITNEY_VERIFIES`",
        (f"{_DOCS}every_variable_of_the_environment_is_in_the_table",),
    ),
    Mutation(
        "a page names a file that was moved",
        "CONTRIBUTING.md",
        "`tests/_tracing.py`",
        "`tests/_traces.py`",
        (f"{_CONTRIBUTING}the_files_that_a_page_names_are_there",),
    ),
]

PORTS = [
    Mutation(
        "a step of trf goes uphill",
        "examples/trf/_subproblem.py",
        "p = product(inverse, -c)",
        "p = product(inverse, c)",
        (f"{_METHOD}a_step_inside_the_region_is_that_of_gauss_and_newton",),
    ),
    Mutation(
        "trf never enlarges its region",
        "examples/trf/_solve.py",
        "grown = jnp.where((ratio > 0.75) & at_edge, 2 * state.radius, state.radius)",
        "grown = state.radius",
        (f"{_NIST}as_many_evaluations_as_scipy",),
    ),
    Mutation(
        "trf stops when the cost changes by a thousandth",
        "examples/trf/_solve.py",
        "by_cost = (actual < controls.ftol * state.model.cost) & (ratio ",
        "by_cost = (actual < jnp.maximum(controls.ftol, 1e-3) * state.model.cost) & (ratio ",
        (f"{_NIST}certified_digits",),
    ),
    Mutation(
        "a robust loss bends the other way",
        "examples/trf/_losses.py",
        "return 2 * z / (root + 1), 1 / root, -0.5 / root**3",
        "return 2 * z / (root + 1), 1 / root, 0.5 / root**3",
        (f"{_LOSSES}robust_losses_agree_with_scipy[soft_l1]",),
    ),
    Mutation(
        "masked points count in a robust loss",
        "examples/trf/_losses.py",
        "        value = jnp.where(counts, value, 0.0)\n",
        "        value = jnp.where(counts, value, value)\n",
        (f"{_API}mask_and_robust_loss",),
    ),
    Mutation(
        "a step may end on a bound",
        "examples/trf/_coleman_li.py",
        "    holds = jnp.where(x >= bounds.upper, 1, jnp.where(x <= bounds.lower, -1, 0))\n",
        "    holds = jnp.where(x > bounds.upper, 1, jnp.where(x < bounds.lower, -1, 0))\n",
        (f"{_BOUNDS}a_step_that_ends_on_a_bound_is_moved_one_rounding_inside",),
    ),
    Mutation(
        "a column of a given Jacobian is of another parameter",
        "examples/trf/_problem.py",
        "return jax.jvp(along, (parameters[i],), (jnp.ones_like(parameters[i]),))[1]",
        "return jax.jvp(along, (parameters[i],), (-jnp.ones_like(parameters[i]),))[1]",
        (f"{_API}curve_fit_agrees_with_scipy",),
    ),
    Mutation(
        "shocks of the linear solution have the other sign",
        "examples/equilibrium/_linear.py",
        'sides = -(blocks["z"] + rho * blocks["z_next"]).T[:, :, None]',
        'sides = (blocks["z"] + rho * blocks["z_next"]).T[:, :, None]',
        (f"{_TRUTH}brock_mirman_policy_is_the_closed_form",),
    ),
    Mutation(
        "too many stable roots are one solution",
        "examples/equilibrium/_linear.py",
        "    if spanned and (singular or stable > nx):",
        "    if spanned and singular:",
        (f"{_SOLUTIONS}a_passive_policy_is_indeterminate",),
    ),
    Mutation(
        "a target is not freed",
        "examples/equilibrium/_steady.py",
        "theta + targets.free @ end.point[:slots]",
        "theta",
        (f"{_SOLUTIONS}a_target_frees_a_parameter",),
    ),
    Mutation(
        "diffusion and shear of homodyne are one",
        "examples/homodyne/model.py",
        "sheared = p.gamma0 * power_integral(t1, t2, p.beta)",
        "sheared = p.gamma0 * power_integral(t1, t2, p.alpha)",
        (f"{_MODEL}the_model_is_the_published_one",),
    ),
    Mutation(
        "a power near minus one is not integrated by its series",
        "examples/homodyne/model.py",
        "ratio = jnp.where(near, 1 + x / 2 + x**2 / 6, jnp.expm1(safe) / safe)",
        "ratio = jnp.where(near, 1.0, jnp.expm1(safe) / safe)",
        (f"{_MODEL}powers_are_integrated", f"{_MODEL}derivatives_of_the_integral_are_smooth"),
    ),
    Mutation(
        "a journal of other data is gone on with",
        "examples/homodyne/_fit.py",
        '                if np.array_equal(file["key"], self.key):\n',
        '                if file["key"].shape == self.key.shape:\n',
        (f"{_FIT}a_journal_of_other_data_is_put_aside",),
    ),
    Mutation(
        "the expert forgets how many features there are",
        "examples/surrogate/_expert.py",
        "    ] / 2 * np.log(SPREAD)",
        "    ] * np.log(SPREAD)",
        (f"{_EXPERT}evidence_is_that_of_a_multivariate_t",),
    ),
    Mutation(
        "the divergence of the surrogate is the other way round",
        "examples/surrogate/_losses.py",
        "return jnp.sum(xlogy(expert, expert) - expert * log_q)",
        "return jnp.sum(jnp.exp(log_q) * log_q - xlogy(jnp.exp(log_q), expert))",
        (f"{_STEP}losses_are_their_definitions",),
    ),
    Mutation(
        "each number of variables compiles its own step",
        "examples/surrogate/_step.py",
        'PAD = {"vars": [4, 6, 8, 12, 20],',
        'PAD = {"vars": [3, 4, 5, 6, 8, 12, 20],',
        (f"{_TRAIN}3_to_20_variables_share_five_programs",),
    ),
]

MUTATIONS = [*PAGES, *PORTS]
