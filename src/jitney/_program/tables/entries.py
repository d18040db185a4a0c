"""Tables of a function: its layouts by the structure of a call, its entries by static values.

Both are made when a call misses, under the lock of the function. `core.py` looks a call up in them.
"""

from __future__ import annotations

import warnings
from abc import ABC
from collections.abc import Callable, Hashable, Mapping, Sequence

import equinox as eqx

from ..._body.decoration import check_names, resolution_warning
from ..._diagnosis.static_variety import Variety
from ..._errors import AnnotationWarning
from ..._host.switches import OF_PROGRAMS, SETTINGS, Settings
from ..._owners import users_level
from ..._signature.options import Options
from ..._values.attribute_reads import Statics
from ..._values.read_hooks import suspend_readers
from ..._values.strict_keys import strict_key
from ..._view.flatten import Flattener, constants_in
from ..._view.layout import MAX_ENTRIES, Layout
from ..entry import Specialization
from .takers import TakenFunction


class SpecializationTable(TakenFunction, ABC):
    """A function with the layouts and entries that its calls have needed."""

    def __init__(
        self,
        fn: Callable[..., object],
        options: Options,
        namespace: Mapping[str, object] | None = None,
    ):
        super().__init__(fn, options, namespace)
        self.begin_tables()
        # Settings, options, and the options under these settings.
        self._settled: tuple[Settings, Options, Options] | None = None
        # Set once a module has been among the arguments.
        self.flattener: Flattener | None = None
        self._variety = Variety(self.where, self.positions)

    def begin_tables(self) -> None:
        """Have no layout and no entry yet."""
        self.layouts: dict[Hashable, Layout] = {}
        self.entries: dict[Hashable, Specialization] = {}

    def entry_of(
        self,
        layout: Layout,
        leaves: Sequence[object],
    ) -> Specialization:
        """Return the entry of a call: the one that its layout knows, if the objects among the
        static values are unchanged, else one that is looked up or created.
        """
        key = layout.key(leaves)
        try:
            entry = layout.entries.get(key)
        except (TypeError, ValueError):
            layout.check_hashes(leaves)
            raise
        if entry is None:
            SETTINGS.read_environment(self.where)
        if entry is None or not entry.holds():
            entry = layout.remember(key, self.entry(layout, leaves))
        return entry

    def layout(
        self,
        key: tuple[Hashable, ...],
        values: tuple[object, ...],
    ) -> Layout:
        """Return the layout of a call, created if this is the first of its kind.

        It is stored under the key alone, which is what warm calls look up, only if no call of
        another kind can have an equal key.
        """
        # Differences that `==` of keys ignores, such as 1 and 1.0, are added to the key.
        strict = strict_key(key)
        with self.lock:
            # Names that the annotations use may have been defined since the decoration.
            if self.contract.unresolved:
                self.resolve()

            place = (key, strict) if strict else key
            layout = self.layouts.get(place)
            if layout is None:
                if len(self.layouts) >= MAX_ENTRIES:
                    self.drop_layouts()
                if self.flattener is None and any(
                    isinstance(value, eqx.Module) for value in values
                ):
                    self.flattener = Flattener()
                layout = self.layouts[place] = Layout(
                    self.binder,
                    self.contract,
                    values,
                    self.options.donate,
                    constants_in(key),
                )
            return layout

    def entry(
        self,
        layout: Layout,
        leaves: Sequence[object],
        options: Options | None = None,
    ) -> Specialization:
        """Return the entry of a call, created if this is the first of its kind, under the settings
        of now; or under those of `options`.
        """
        if options is None:
            options = self._settled_options()
        under = tuple(getattr(options, name) for name in OF_PROGRAMS)
        is_nested = layout.nested and options.depends_on_nesting
        key = (layout.form, is_nested, under, layout.key(leaves))
        with self.lock, suspend_readers():
            # Entries of one key form a list, one for each state of the mutable objects, the newest
            # first.
            entry = known = self.entries.get(key)
            while entry is not None and not entry.holds():
                entry = entry.other
            if entry is None:
                layout.refuse_unreadable(leaves)
                wider = None if layout.wider is None else self.entry_of(layout.wider, leaves)
                if known is None and len(self.entries) >= MAX_ENTRIES:
                    oldest = [*self.entries][0]  # noqa: RUF015 - in one step: garbage may be collected between two
                    self.history.drop(self.entries.pop(oldest).key)

                # With `cache="program"` the reads of the body are not watched.
                body = None if self.options.cache == "program" else self.fn()
                statics = self._statics(layout, leaves, body)
                entry = self.entries[key] = Specialization(
                    self, layout, statics, (layout.form, under, key[-1]), options, wider, key
                )

                # Drop the entry when one of its objects is gone.
                for stand_in in statics.identities:
                    stand_in.tell(entry)
                entry.follows(known)

                if layout.static:
                    self._variety.count(layout, leaves, self.counters.total)
            return entry

    def _settled_options(self) -> Options:
        """Return the options under the settings of now, which are made anew only if one changed."""
        made = self._settled
        if made is None or made[0] is not SETTINGS.now or made[1] is not self.options:
            made = self._settled = (SETTINGS.now, self.options, self.options.settled())
        return made[2]

    def _statics(
        self,
        layout: Layout,
        leaves: Sequence[object],
        body: Callable[..., object] | None,
    ) -> Statics:
        return Statics.of(layout.statics(leaves), layout.loose, body, self.where)

    def drop(self, entry: Specialization) -> None:
        """Drop an entry whose object is gone, and all others of its key.

        Runs during garbage collection, so it must not wait for a lock.
        """
        waiting = [*self.layouts.values()]
        while waiting:
            layout = waiting.pop()
            layout.entries.pop(entry.place[-1], None)
            waiting += layout.holding.values()
        self.entries.pop(entry.place, None)

    def forget_tables(self) -> None:
        """Drop every layout and entry, and with them JAX's functions."""
        self.drop_layouts()
        self.entries.clear()
        self.flattener = None if self.flattener is None else Flattener()

    def drop_layouts(self) -> None:
        """Look every call up anew, among the entries that are there."""
        self.layouts.clear()
        self.forget_takers()

    def resolve(self) -> None:
        """Read annotations that use names which were undefined at decoration; warn about names that
        are still undefined.
        """
        namespace = self.namespace
        if not self.reread_annotations():
            return
        check_names(self)
        if self.contract.unresolved:
            warnings.warn(
                resolution_warning(self, namespace), AnnotationWarning, stacklevel=users_level()
            )
