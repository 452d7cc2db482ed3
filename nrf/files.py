"""Files and folders: what may be read and how large it may be, atomic writes, what is kept between runs."""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from secrets import token_hex

from nrf.errors import InputError

# The limits of what strangers' files may make us take. All readers ask here, before they take anything.
MEMORY = 3 << 29  # bytes that one step may need; with Python and its libraries a process stays below 2 GB
TEXT = 4 << 20  # bytes of a TOML or JSON file
MEMBERS = 20_000  # arrays, groups and datasets of a file
LABELS = 1_000_000  # classes of clips
DEPTH = 32  # groups within groups, tables within tables


def input_file(path: str | Path) -> Path:
    """A path that can be read: no folder, pipe, device, or link without end."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:  # the latter for a zero byte in its name
        raise InputError(
            f"{path}: {getattr(error, 'strerror', None) or error}".replace("No such", "no such")
        ) from error
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "pipe, socket or device"
        raise InputError(f"{path}: is a {kind}, expected a file")
    return Path(path)


def require_memory(where: object, needed: float, what: str, remedy: str = "") -> None:
    """Refuse what would need more memory than is allowed, before it is taken. NRF_MEMORY allows more.

    >>> require_memory("clip.npz", 2**40, "its arrays")
    Traceback (most recent call last):
    nrf.errors.InputError: clip.npz: its arrays need 1,099.5 GB of memory, at most 1.6 are taken; ...
    """
    own = os.environ.get("NRF_MEMORY", "")
    allowed = float(own) * 1e9 if own.replace(".", "", 1).isdecimal() else MEMORY
    if needed > allowed:
        raise InputError(
            f"{where}: {what} need {needed / 1e9:,.1f} GB of memory, at most {allowed / 1e9:.1f} are taken; "
            f"{remedy or 'if that is meant'}, allow more with NRF_MEMORY=<gigabytes>"
        )


def read_text(path: str | Path) -> str:
    """The text of a small file, which must be UTF-8."""
    if (size := input_file(path).stat().st_size) > TEXT:
        raise InputError(f"{path}: {size:,} bytes of text, expected at most {TEXT:,}")
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


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
        new = f".{end.stem[:100]}.{_own_name(end.parent)}{token_hex(8)}{end.suffix[:20]}"
        (end.parent / new).touch(exist_ok=False)
        part = end.parent / new
        yield part
        part.replace(end)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder."""
    with tempfile.TemporaryDirectory(prefix=_own_name(Path(tempfile.gettempdir()))) as folder:
        yield Path(folder)


def _own_name(folder: Path) -> str:
    """The beginning of temporary names of this process in a folder."""
    return f"{_others_removed(folder, os.getpid())}-{os.getpid()}-"


@cache
def _others_removed(folder: Path, process: int) -> str:
    """Remove, once per process, what those that are no more have left in a folder; how our names begin."""
    space = Path("/proc/self/ns/pid")  # containers may share a folder, but not the numbers of processes
    here = f"{platform.node()} {space.readlink() if space.is_symlink() else ''}"
    begin = f"nrf-{hashlib.sha256(here.encode()).hexdigest()[:8]}"
    for path in folder.iterdir():
        owner = re.search(rf"(?:^|^\..*\.){begin}-(\d{{1,9}})-", path.name)
        if owner and not _is_running(int(owner[1])):
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    return begin


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


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

    return private(Path(os.environ.get("NRF_CACHE") or platformdirs.user_cache_path("nrf")))


def private(folder: Path) -> Path:
    """A folder that only we can write to, directly or by exchanging one above it; we run what is in it."""
    for place in (folder, *folder.absolute().parents):
        about = place.stat() if place.is_dir() else None
        if about is None:
            continue  # not made yet
        mode, above = about.st_mode, place != folder
        others = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and about.st_gid not in (0, os.getgid()))
        foreign = not above and about.st_uid not in (0, os.getuid())
        if foreign or (others and not (above and mode & stat.S_ISVTX)):
            raise InputError(
                f"{place}: others can write to this folder, and we would run what is in {folder}; take that "
                "right away with chmod, or set NRF_CACHE to a folder of your own"
            )
    return folder


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a folder alone: whoever else wants to is refused. The lock falls with the process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        text = "another process writes into it; wait for it, or choose another folder"
        raise InputError(f"{folder}: {text}") from error
    finally:
        os.close(handle)
