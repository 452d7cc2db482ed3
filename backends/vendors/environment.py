"""Environments of the vendors: one virtual environment each, in the user's cache folder.

    <cache>/envs/<vendor>-<python version>-<hash of requirements>/             the environment
    <cache>/envs/<vendor>-<python version>-<hash of requirements>/ready.json   written last
    <cache>/envs/<vendor>-<python version>-<hash of requirements>.lock         held by whoever builds it

A build that was killed leaves no `ready.json`; the next one removes the folder and starts again. The lock
is inherited by the installer, so that one that outlives its killed parent still keeps others out.

Where uv is installed it makes the environments, and brings the Python that a vendor needs; else venv and pip
do, with a Python that must be there. Every package is pinned with the hashes of its files. Of the user's
configuration of pip or uv only where packages come from is taken, never what is installed or how.

Nothing here is run because of its name: `ready.json` states the requirements, and a hash over what the
installer wrote down about every package; where either is different now, the environment counts as missing.
"""

import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from nrf.backends.border import Absent
from nrf.containers import parse_json
from nrf.errors import InputError
from nrf.files import atomic_write, cache_folder, private, read_text, scratch

Say = Callable[[str], None]
PROBE_SECONDS = 120.0  # starting a Python takes one; frameworks on a cold disk take many
FROM_SOURCE = "# from source"  # begins the part of a requirements file that has no wheels
PIP_WHERE = (
    "index-url", "extra-index-url", "no-index", "find-links", "proxy", "cert", "client-cert", "trusted-host",
    "timeout", "default-timeout",
)  # fmt: skip
UV_WHERE = re.compile(r"INDEX|FIND_LINKS|TLS|SSL|MIRROR|OFFLINE|CACHE_DIR|INSTALL_DIR")


@dataclass(frozen=True)
class Vendor:
    """A simulator, or frameworks that dialects are held against, outside the main environment."""

    name: str
    distribution: str  # whose version is shown
    probe: str  # an import that proves that it starts
    python: str  # the one that its wheels are for


VENDORS = {
    vendor.name: vendor
    for vendor in (
        Vendor("lava", "lava-nc", "import lava.proc.lif.process", python="3.10"),
        Vendor("lava-dl", "lava-dl", "import lava.lib.dl.netx", python="3.10"),
        Vendor("sinabs", "sinabs", "import sinabs.layers, sinabs.nir", python="3.11"),
        Vendor(
            "frameworks",
            "snntorch",
            "import snntorch, norse.torch, spikingjelly.activation_based, rockpool.nn.modules",
            python="3.11",
        ),
        Vendor("spyx", "spyx", "import spyx.nn, spyx.nir", python="3.11"),
    )
}


def python_of(vendor: str) -> Path | None:
    """The Python of a vendor's environment, or None if it is not built.

    NRF_<VENDOR>_PYTHON names one of the user's own instead, as on a host with Intel's Loihi extension or
    with the real samna.
    """
    if own := own_python(vendor):
        return own
    for folder in (cache_folder() / "envs").glob(f"{vendor}-*-{_digest(vendor)[:12]}"):
        python, stamp = folder / "bin" / "python", folder / "ready.json"
        if stamp.exists() and python.exists():  # False if the interpreter that it links to was uninstalled
            try:
                said = parse_json(read_text(stamp))
            except ValueError:  # a disk that was full, or somebody's editor
                continue
            stated = [said.get(key) for key in ("requirements", "content")] if isinstance(said, dict) else []
            if stated == [_digest(vendor), _content(private(folder))]:
                return python
    return None


def _content(folder: Path) -> str:
    """SHA-256 over names and hashes of all files that were installed, as the installer wrote them down."""
    records = sorted(folder.glob("lib/python3*/site-packages/*.dist-info/RECORD"))
    about = [(str(path.relative_to(folder)).encode(), path.read_bytes()) for path in records]
    about.append((b"python", os.path.realpath(folder / "bin" / "python").encode()))
    return hashlib.sha256(b"\0".join(part for pair in about for part in pair)).hexdigest()


def disk_space(vendor: str) -> int:
    """Bytes on disk of an environment that `build` made; 0 if there is none, or the user names an own one."""
    python = python_of(vendor)
    if python is None or own_python(vendor):
        return 0
    files = (path.lstat() for path in python.parents[1].rglob("*") if not path.is_dir())
    return sum(status.st_blocks * 512 for status in files)


def own_python(vendor: str) -> Path | None:
    """The Python that the user names for a vendor."""
    if vendor not in VENDORS:
        raise InputError(f"no vendor '{vendor}'; there are {', '.join(VENDORS)}")
    variable = f"NRF_{vendor.upper().replace('-', '_')}_PYTHON"
    if not (value := os.environ.get(variable)):
        return None
    if not os.access(value, os.X_OK):
        raise InputError(f"{variable} is {value}, which is not a program; name a Python or unset it")
    return Path(value)


def absent(vendor: str) -> Absent | None:
    """Why a vendor's environment cannot be used, or None if it can."""
    return None if python_of(vendor) else Absent(f"no environment for {vendor}", f"nrf setup {vendor}")


def build(vendor: str, say: Say = print) -> Path:
    """Build a vendor's environment, unless it is there; its Python."""
    if python := python_of(vendor):
        return python
    spec, uv = VENDORS[vendor], shutil.which("uv")
    base = spec.python if uv else find_python(spec)
    version = spec.python if uv else _version(Path(base))
    folder = cache_folder() / "envs" / f"{vendor}-{version}-{_digest(vendor)[:12]}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder.parent}: {error.strerror}; set NRF_CACHE to another folder") from error
    with _locked(folder.with_name(f"{folder.name}.lock"), say) as lock:
        if python := python_of(vendor):  # someone else has built it while we waited
            return python
        shutil.rmtree(folder, ignore_errors=True)
        python = folder / "bin" / "python"
        say(f"{vendor}: new environment in {folder}")
        with scratch() as temporary:  # what an installer leaves when it is killed goes with the next build
            installer = _installer_settings() | {"TMPDIR": str(temporary)}
            make = [uv, "venv", "--python", base, folder] if uv else [base, "-m", "venv", folder]
            _execute(make, say, lock, installer)
            pip = [uv, "pip", "install", "--python", python]
            if not uv:
                pip = [python, "-m", "pip", "install", "--progress-bar=off"]
                installer |= _sources(python)
            wheels, mark, sources = _requirements(vendor).partition(FROM_SOURCE)
            for part, how in (
                (wheels, ["--only-binary", ":all:"]),
                (mark + sources, ["--no-build-isolation"]),
            ):
                if part.strip():
                    requirements = folder / "requirements.txt"
                    requirements.write_text(part)
                    options = ["--require-hashes", "--no-deps", *how]
                    _execute([*pip, "--requirement", requirements, *options], say, lock, installer)
        say(f"{vendor}: does it start?")
        version = probe(vendor, python)
        ready = {"version": version, "requirements": _digest(vendor), "content": _content(folder)}
        with atomic_write(folder / "ready.json") as stamp:
            stamp.write_text(json.dumps(ready))
        say(f"{vendor}: {spec.distribution} {version} is ready")
        return python


def probe(vendor: str, python: Path) -> str:
    """Import the vendor's package in its environment; its version."""
    spec = VENDORS[vendor]
    code = f"{spec.probe}; from importlib.metadata import version; print(version('{spec.distribution}'))"
    try:
        return _ask(python, code, isolated=not own_python(vendor)).split()[-1]
    except InputError as error:
        raise InputError(f"{vendor}: `{spec.probe}` fails in {error}") from error


def find_python(spec: Vendor) -> Path:
    """An interpreter of the version that a vendor needs: on PATH, or in pyenv."""
    name = f"python{spec.python}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    on_path = [Path(folder) / name for folder in os.get_exec_path()]
    for candidate in on_path + sorted(pyenv.glob(f"versions/{spec.python}*/bin/{name}"), reverse=True):
        if _version(candidate).startswith(f"{spec.python}."):
            return candidate
    raise InputError(
        f"{spec.name} needs Python {spec.python}, and there is none on PATH or in pyenv; install uv, which "
        f"brings one, or one with `pyenv install {spec.python}`, then run: nrf setup {spec.name}"
    )


def _version(python: Path) -> str:
    """Full version of an interpreter; empty if it does not start (as a pyenv shim) or cannot make a venv."""
    return answers(python, "import platform, venv, ensurepip; print(platform.python_version())") or ""


def answers(python: Path, code: str, *, isolated: bool = True) -> str | None:
    """What a snippet prints in another interpreter, or None if it fails, hangs or the interpreter is none.

    The user's own Python is not isolated: it may find the vendor's software by its PYTHONPATH.
    """
    try:
        return _ask(python, code, isolated)
    except InputError:
        return None


def _ask(python: Path, code: str, isolated: bool) -> str:
    command: list[Any] = [python, *(["-I"] if isolated else []), "-c", code]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{python}, which does not start: {error}") from error
    if answer.returncode:
        said = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        raise InputError(f"{python}: {said[-1]}")
    return answer.stdout.strip()


def _installer_settings() -> dict[str, str]:
    """Of an installer: nothing that configures Python, pip or uv, but where uv finds packages."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_", "UV_"))}
    where = {
        key: value for key, value in os.environ.items() if key.startswith("UV_") and UV_WHERE.search(key)
    }
    # hashes decide what is installed: which of the indexes delivers it is the same
    fixed = {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "UV_INDEX_STRATEGY": "unsafe-best-match"}
    return ours | where | fixed


def _sources(python: Path) -> dict[str, str]:
    """Where the user's pip finds packages, from its files and variables, as variables."""
    command = [str(python), "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    rank = {"global": 0, "install": 1, ":env:": 2}  # the later counts
    entries = [(*name.rsplit(".", 1), value) for name, _, value in (line.partition("=") for line in listed)]
    found = {}
    for section, key, value in sorted(entries, key=lambda entry: rank.get(entry[0], -1)):
        if key in PIP_WHERE and section in rank:
            found[f"PIP_{key.upper().replace('-', '_')}"] = " ".join(str(ast.literal_eval(value)).split())
    return found


def _execute(command: list[Any], say: Say, lock: int, environment: dict[str, str]) -> None:
    """Run a step of a build; each line that it prints is progress."""
    last: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env=environment,
        pass_fds=(lock,),
    ) as process:
        assert process.stdout
        for line in process.stdout:
            last.append(line.strip())
            say(line.rstrip())
    if process.returncode:
        errors = [line for line in last if line.lower().startswith("error")]
        reason = (errors or last or ["no output"])[0 if errors else -1]
        raise InputError(f"{' '.join(str(part) for part in command[:4])} failed: {reason}")


@contextmanager
def _locked(path: Path, say: Say) -> Iterator[int]:
    """Hold an exclusive lock; it falls when the last process that holds it ends, however it ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is building here, waiting for it ({path})")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _requirements(vendor: str) -> str:
    return (resources.files("nrf.backends.vendors") / f"{vendor}.txt").read_text()


def _digest(vendor: str) -> str:
    return hashlib.sha256(_requirements(vendor).encode()).hexdigest()
