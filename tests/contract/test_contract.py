"""Signatures as data: the axes of modules and of arguments, and which array has which
annotation.
"""

import inspect

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from jitney._contract.contract import all_matches, contract_of, matches
from jitney._errors import Where
from jitney._signature.type_hints import read
from tests.contract._contracts import Linear, Model, check, contract, one, refusal, residual, z


def test_instances_bind_their_own_axes():
    """Two layers of one class differ in `in` and `out`, and neither is shared with the
    signature.
    """

    def f(model: Model, x: Float[Array, "in"]): ...

    sizes, notes = check(f, Model([Linear(z(2, 3), z(2)), Linear(z(5, 2), None)]), z(7))
    assert (sizes.size_by_axis, notes) == ({"in": 7}, ())


def test_sizes_may_depend_on_a_module():
    """`{model.width}` is read from the argument."""

    def f(model: Linear, x: Float[Array, "{model.width}+1"]): ...

    check(f, Linear(z(2, 3), None), z(5))
    assert "makes it 5" in refusal(f, Linear(z(2, 3), None), z(6))


def test_sizes_may_depend_on_self():
    """In methods, and in the fields of a module."""

    class Bank(eqx.Module):
        dim: int = eqx.field(static=True)
        taps: Float[Array, "{self.dim}"]

        def __call__(self, x: Float[Array, "{self.dim}"]): ...

    check(Bank.__call__, Bank(3, z(3)), z(3))
    assert "makes it 3" in refusal(Bank.__call__, Bank(3, z(3)), z(4))
    assert "'x.taps'" in refusal(one(Bank), Bank(3, z(4)))


def test_modules_may_have_lost_their_arrays():
    """`eqx.partition` leaves None, a filter leaves booleans, `jax.eval_shape` leaves structs."""
    model = Model([Linear(z(2, 3), z(2))])
    arrays, rest = eqx.partition(model, eqx.is_array)
    mask = jax.tree.map(eqx.is_array, model)
    structs = eqx.filter_eval_shape(lambda m: m, model)
    for variant in (arrays, rest, mask, structs):
        check(one(Model), variant)


def test_modules_made_under_vmap_are_not_checked():
    """All arrays have one more leading axis: the class is right, the annotations are of one
    member.
    """
    stacked = eqx.filter_vmap(lambda key: Linear(jax.random.normal(key, (2, 3)), z(2)))(
        jax.random.split(jax.random.key(0), 5)
    )
    _, notes = check(one(Linear), stacked)
    assert "'x' is a stack of 5" in notes[0]


def test_one_field_with_an_extra_axis_is_an_error():
    """The others do not have it."""
    assert "'x.weight' has 3 axes" in refusal(one(Linear), Linear(z(5, 2, 3), z(2)))


def test_matches_pair_each_array_with_its_annotation():
    """Through containers and modules; static fields and Python numbers in modules are no arrays."""

    def f(
        model: Model, data: tuple[Float[Array, "n"], int], scale: float, *rest: Float[Array, "k"]
    ): ...

    arguments = {
        "model": Model([Linear(z(2, 3), None)]),
        "data": (z(3), 1),
        "scale": 1.0,
        "rest": (z(1), z(1)),
    }
    found = [(match.path, match.argument) for match in all_matches(contract(f), arguments)]
    assert found == [
        ("model.layers[0].weight", "model"),
        ("data[0]", "data"),
        ("scale", "scale"),
        ("rest[0]", "rest"),
        ("rest[1]", "rest"),
    ]


def test_matches_take_the_alternative_that_fits():
    """The rank decides."""
    (match,) = matches(read(Float[Array, "n"] | Float[Array, "n m"]), z(2, 3), "x", "x")
    assert match.hint.names == ("n", "m")


def test_matches_do_not_mind_an_extra_axis():
    """A mapped argument has one axis more than its annotation."""
    (match,) = matches(read(Float[Array, "n"] | None), z(5, 3), "x", "x")
    assert match.hint.names == ("n",)


def test_axes_are_those_of_the_signature():
    """Also in unions, trees, containers, expressions and the result, but not in module fields."""

    def f(
        m: Model,
        x: Float[Array, "a *b"] | None,
        y: PyTree[Float[Array, "c"]],
        z: dict[str, Float[Array, "d+1"]],
    ) -> Float[Array, "e"]: ...

    assert contract(f).axes == {"a", "b", "c", "d", "e"}


def test_contracts_compare_by_meaning():
    """Where a function stands does not change the compiled code."""
    signature = inspect.signature(residual)
    assert contract_of(residual, signature, Where("a")) == contract_of(
        residual, signature, Where("b")
    )
    assert hash(contract_of(residual, signature, Where("a"))) == hash(
        contract_of(residual, signature, Where("b"))
    )
