"""Files and folders: atomic writes, and where things are kept between runs."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nrf.errors import InputError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Give a temporary name with the same ending; rename it to `path` if the block ends without error.

    >>> with atomic_write("notes.txt") as part:  # doctest: +SKIP
    ...     part.write_text("all of it, or nothing")
    """
    path, end = Path(path), Path(os.path.realpath(path))  # a link stays a link
    part = None
    try:
        if not end.parent.is_dir():
            raise InputError(f"{path}: folder {path.parent} does not exist; create it first")
        if end.exists() and not end.is_file():
            kind = "folder" if end.is_dir() else "device"
            raise InputError(f"{path}: is a {kind}; give the name of a file")
        handle, name = tempfile.mkstemp(end.suffix[:20], f".{end.stem[:100]}.", end.parent)
        os.close(handle)
        part = Path(name)
        yield part
        part.chmod(0o666 & ~_umask())
        part.replace(end)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def make_folder(path: str | Path) -> Path:
    """Create a folder and those above it, if they are not there yet."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made a folder: {error.strerror or error}") from error
    return Path(path)


def cache_folder() -> Path:
    """The user's cache folder, or the one that NRF_CACHE names."""
    import platformdirs

    return Path(os.environ.get("NRF_CACHE") or platformdirs.user_cache_path("nrf"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
