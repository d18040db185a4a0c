"""Variables that a function closes over."""

from jitney._values.attributes import closure_variables


def outer():
    first = 1.5

    def inner():
        return first, second

    before = closure_variables(inner), closure_variables(inner, unset="nothing")
    second = first
    return before, closure_variables(inner)


def test_a_variable_that_is_not_set_yet_is_left_out_or_named():
    """Python raises for its cell until the outer function has set it."""
    before, after = outer()
    assert before == ({"first": 1.5}, {"first": 1.5, "second": "nothing"})
    assert after == {"first": 1.5, "second": 1.5}


def test_a_function_without_a_closure_has_none():
    """Its cells are no tuple but None."""
    assert closure_variables(outer) == {}
