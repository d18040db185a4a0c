"""Messages in a notebook name a cell as the notebook does, and an error is shown once."""

import pytest

pytestmark = pytest.mark.rest

SQUARE = """\
@jitney.optimize
def square(x: Float[Array, "n"]) -> Float[Array, "n"]:
    return x * x"""


def test_a_function_is_of_its_cell(notebook):
    """By number and line: in a plan, in the causes of traces and in what shows a program."""
    cell = notebook.run(SQUARE).number
    for code in (
        "print(square.plan(jnp.ones(3)))",
        "print(square)",
        "print(square.lower(jnp.ones(3)))",
    ):
        assert f"square() at In[{cell}]:1" in notebook.run(code).printed


def test_a_cell_that_is_run_again_has_its_new_number(notebook):
    """The text is that of before, so is the name that IPython gives to its file."""
    before = notebook.run(SQUARE).number
    now = notebook.run(SQUARE).number
    assert now > before
    assert f"square() at In[{now}]:1" in notebook.run("print(square)").printed


def test_a_function_keeps_its_cell_until_it_is_decorated_again(notebook):
    """Another cell of another text changes nothing."""
    cell = notebook.run(SQUARE).number
    notebook.run(SQUARE.replace("x * x", "x * x * x").replace("square", "cube"))
    assert f"square() at In[{cell}]:1" in notebook.run("print(square)").printed


def test_an_error_is_shown_once_with_the_line_of_the_cell(notebook):
    """Below IPython's arrow stands the message, and no frame of JAX or jitney in between."""
    defined = notebook.run(SQUARE).number
    for call in ("square(jnp.ones((2, 3)))", "square(jnp.ones(3), 4)"):
        cell = notebook.run(f"x = 1\n{call}")
        message = cell.error.splitlines()[-4]
        assert f"square() at In[{defined}]:1: " in message
        assert cell.error.count("square() at") == 1
        assert f"Cell In[{cell.number}], line 2" in cell.error
        assert "site-packages" not in cell.error
        assert "jitney/_" not in cell.error


def test_a_line_that_needs_a_value_is_of_its_cell(notebook):
    """The message has the line inside of the function."""
    cell = notebook.run(
        "@jitney.optimize\ndef f(x):\n    if x > 0:\n        return x\nf(jnp.float32(1))"
    )
    assert f"In[{cell.number}]:3 (`if x > 0:`) needs a concrete value" in cell.error


def test_the_cause_of_a_trace_is_of_its_cell(notebook):
    """A function of a closure that is defined anew, in another cell."""
    notebook.run("@jitney.optimize\ndef apply(f, x):\n    return f(x)")
    first = notebook.run("apply(lambda x: x + 1, 1.0); None")
    second = notebook.run("apply(lambda x: x + 2, 1.0); print(apply.stats)")
    assert first.error == second.error == ""
    places = f"<lambda> at In[{first.number}]:1 -> <lambda> at In[{second.number}]:1"
    assert f"static value of 'f' {places}" in " ".join(second.printed.split())


def test_a_warning_is_of_its_cell(notebook):
    """Its text, and above it the line of the call."""
    cell = notebook.run(
        "@jitney.optimize\ndef named(x: 'NoSuchType'):\n    return x\nnamed(jnp.ones(3)); None"
    )
    assert f"named() at In[{cell.number}]:1" in cell.warned
    assert cell.warned.count("AnnotationWarning") == 1


def test_a_module_is_a_file(notebook):
    """What a notebook imports is no cell of it."""
    code = "import jitney, jax.numpy as jnp\n@jitney.optimize\ndef twice(x):\n    return 2 * x\n"
    notebook.run(f"open('helper.py', 'w').write({code!r})")
    assert "twice() at helper.py:2" in notebook.run("import helper; print(helper.twice)").printed


def test_text_of_a_cell_that_is_run_without_a_number_is_named_too(notebook):
    """Front ends run some code silently, which is in no history."""
    notebook.run("get_ipython().run_cell('''" + SQUARE + "''', store_history=False); None")
    assert "square() at In[" in notebook.run("print(square)").printed
