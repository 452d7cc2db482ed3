"""Compiled loops: numba with a cache on disk that can never be stale.

Numba looks only at the file of a function, so that a constant or a function from another file could change
without a word to its cache. Here the folder of the cache carries a hash of every source that a kernel's file
imports from its own package, directly or not. Keep kernels in files that import little.
"""

import ast
import hashlib
import inspect
import logging
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import event
from numba.core.options import DefaultOptions

from nrf.files import cache_folder

F = TypeVar("F", bound=Callable[..., Any])
UNCOUNTED = {"_nrt": False} if hasattr(DefaultOptions, "_nrt") else {}  # references to arrays


class _Notice(event.Listener):
    """Says once, to the logger `nrf`, that loops are being compiled: the first run of a version waits."""

    said = False

    def on_start(self, event: Any) -> None:
        """One function begins."""
        ours = event.data["dispatcher"].py_func.__module__.startswith("nrf.")
        if ours and not _Notice.said:
            _Notice.said = True
            logging.getLogger("nrf").info("compiling loops for this machine, once; this takes some seconds")

    def on_end(self, event: Any) -> None:
        """One function is done."""


event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]


def compiled(*, allocates: bool = True, **options: Any) -> Callable[[F], F]:
    """`numba.njit` with the options given, cached in a folder of its own; types are kept.

    What makes no arrays may say so: those that it gets outlive it, and nobody counts who holds a part of one,
    which in a loop over small parts takes a third of the time. Numba refuses it where it is not so.

    >>> @compiled(nogil=True)  # doctest: +SKIP
    ... def total(values):
    ...     return values.sum()
    """

    options = options if allocates else options | UNCOUNTED

    def compile_later(function: F) -> F:
        settings: Any = numba.config  # numba's own types do not know its settings
        before = settings.CACHE_DIR
        sources = digest(Path(inspect.getfile(function)), function.__module__.partition(".")[0])
        settings.CACHE_DIR = str(cache_folder() / "kernels" / sources)
        try:  # numba asks for the folder here, once; other people's kernels keep theirs
            return cast(F, numba.njit(cache=True, **options)(function))
        finally:
            settings.CACHE_DIR = before

    return compile_later


@cache
def digest(file: Path, package: str) -> str:
    """SHA-256 over a source and all that it imports from `package`, directly or not, 16 hex digits."""
    seen: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen[path], imported = _source(path, package)
            waiting += imported
    return hashlib.sha256(b"\0".join(seen[path] for path in sorted(seen))).hexdigest()[:16]


@cache
def _source(file: Path, package: str) -> tuple[bytes, list[Path]]:
    """A source, and the files of what it imports from `package` when it is loaded itself."""
    source, names = file.read_bytes(), set[str]()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    modules = [sys.modules.get(name) for name in names if name.partition(".")[0] == package]
    return source, [Path(module.__file__) for module in modules if module and module.__file__]


@compiled(inline="always", allocates=False)
def reach(place: Any, padding: Any, stride: Any, taps: Any, size: Any) -> Any:
    """Along one axis: phase of an event, output of its first tap, and which of the taps lie inside the map.

    output = place + padding - tap, in units of the stride; `taps` are those of one phase, backwards.
    """
    shifted = place + padding
    first = shifted // stride - (taps - 1)
    return shifted % stride, first, max(0, -first), min(taps, size - first)
