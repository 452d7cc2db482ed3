"""Slow modules of others that a run of a program may never need: loaded when they are first used."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["networkx", "sparse"]


class Lazy(ModuleType):
    """Stands for a module, and loads it when something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


if TYPE_CHECKING:
    import networkx
    from scipy import sparse
else:
    networkx, sparse = Lazy("networkx"), Lazy("scipy.sparse")
