"""Is the real samna here? The one on public indexes is a stub that, imported, tries to install it."""

import importlib.util
from pathlib import Path

STUB = "PYPI_SAMNA"  # only the stub's text has it


def require_samna() -> None:
    """Say in one line what is missing; imports nothing."""
    spec = importlib.util.find_spec("samna")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "samna is not installed in Sinabs' environment; install SynSense's own package there"
        )
    if STUB in Path(spec.origin).read_text(errors="ignore"):
        raise RuntimeError("samna here is the public stub without a driver; install SynSense's own package")
