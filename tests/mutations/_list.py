"""All mutations, theme by theme."""

from __future__ import annotations

from tests.mutations import _rules
from tests.mutations._mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (*_rules.MUTATIONS,)
