"""All mutations, theme by theme."""

from __future__ import annotations

from tests.mutations import _data, _keys, _options, _pages, _rules
from tests.mutations._mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = (
    *_rules.MUTATIONS, *_options.MUTATIONS, *_keys.MUTATIONS, *_data.MUTATIONS, *_pages.MUTATIONS,
)  # fmt: skip
