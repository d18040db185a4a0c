"""Serialised programs for other processes: which programs are cached, under which key, and how one
is found and called.
"""

from typing import TYPE_CHECKING

from .._lazy import names

if TYPE_CHECKING:
    from .kept import SerializedPrograms as SerializedPrograms
    from .key import key_of as key_of
    from .mesh_layout import MeshLayout as MeshLayout
else:
    __getattr__, __dir__, __all__ = names(
        __name__, {"SerializedPrograms": "kept", "key_of": "key", "MeshLayout": "mesh_layout"}
    )
