"""All mutations, theme by theme."""

from __future__ import annotations

from tests.mutations import (
    _auto,
    _data,
    _edges,
    _keys,
    _options,
    _pages,
    _rows,
    _rules,
    _threads,
    _traced,
)
from tests.mutations._mutation import Mutation

_THEMES = (_rules, _options, _keys, _edges, _data, _pages, _rows, _threads, _auto, _traced)
MUTATIONS: tuple[Mutation, ...] = tuple(each for theme in _THEMES for each in theme.MUTATIONS)
