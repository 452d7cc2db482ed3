"""Slow modules of others that a run of a program may never need: loaded when they are first used."""

import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["load_numba", "networkx", "sparse"]


class Lazy(ModuleType):
    """Stands for a module, and loads it when something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


if TYPE_CHECKING:
    import networkx
    from scipy import sparse
else:
    networkx, sparse = Lazy("networkx"), Lazy("scipy.sparse")


def load_numba() -> None:
    """Load numba without what it looks for beside itself, a seventh of the time of a short run.

    It tries to import SciPy's linear algebra and cffi, which none of our kernels uses; a module that is None
    counts as not installed. Where numba's own modules are called otherwise, it loads as it always does.
    """
    hidden = [name for name in ("scipy.linalg", "cffi") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        for name in ("numba.np.arraymath", "numba.core.typing.cffi_utils"):
            with suppress(ImportError):
                import_module(name)
    finally:
        for name in hidden:
            del sys.modules[name]
