"""Write the hashes of every pinned package into the requirements of the vendors' environments.

    python -m tests.backends.vendors.write_hashes [VENDOR ...]

Those of the wheels for the vendor's Python, on Linux and macOS, or of the source where there is no wheel;
from the index that pip uses here, and the folders of PIP_FIND_LINKS. Of torch on Linux only a CPU build's:
the index's own needs gigabytes of CUDA that nothing here computes with.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from nrf.backends.vendors.environment import VENDORS

FOLDER = Path(__file__).parents[3] / "backends" / "vendors"
PIN = re.compile(r"^([\w.-]+)==([\w.]+)")


def main() -> None:
    for name in sys.argv[1:] or VENDORS:
        path = FOLDER / f"{name}.txt"
        lines = [line for line in path.read_text().splitlines() if not line.startswith(" ")]
        pins = [line.removesuffix(" \\") for line in lines]
        path.write_text("".join(_hashed(pin, VENDORS[name].python) for pin in pins))
        print(path)


def _hashed(line: str, python: str) -> str:
    if not (pin := PIN.match(line)):
        return f"{line}\n"
    files = {**_on_index(pin[1]), **_in_folders(pin[1])}
    ours = {file: digest for file, digest in files.items() if _is(file, *pin.groups(), python)}
    wheels = {digest for file, digest in ours.items() if file.endswith(".whl")} or set(ours.values())
    assert wheels, f"{line}: no file of it"
    return line + "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(wheels)) + "\n"


def _is(file: str, name: str, version: str, python: str) -> bool:
    """Whether a file is this version of a package, for this Python, on a system that we run on."""
    stem = re.sub(r"[-_.]+", "[-_.]+", name) + "-" + re.escape(version)
    if re.fullmatch(rf"{stem}\.(tar\.gz|zip)", file, re.I):
        return True
    if not re.match(rf"{stem}(\+cpu)?-", file, re.I) or not file.endswith(".whl"):
        return False
    tag, abi, system = file.removesuffix(".whl").split("-")[-3:]
    exact, oldest = f"cp{python.replace('.', '')}", [int(v) for v in re.findall(r"cp3(\d+)", tag)]
    fits = "py3" in tag or tag == exact or (abi == "abi3" and oldest[0] <= int(python.split(".")[1]))
    cpu = name != "torch" or "+cpu" in file or "macosx" in file or version < "2"
    return (
        fits and cpu and ("any" in system or "manylinux" in system or "macosx" in system) and abi[-1] != "t"
    )


def _on_index(name: str) -> dict[str, str]:
    from pip._internal.models.index import PyPI  # pip's default, unless the configuration names another

    ask = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    own = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
    with urlopen(f"{(own or PyPI.simple_url).rstrip('/')}/{re.sub(r'[-_.]+', '-', name).lower()}/") as page:
        found = re.findall(r"/([^/\"]+)#sha256=(\w{64})", page.read().decode())
    return {file.replace("%2B", "+"): digest for file, digest in found}


def _in_folders(name: str) -> dict[str, str]:
    folders = os.environ.get("PIP_FIND_LINKS", "").split()
    files = [file for folder in folders for file in Path(folder).glob(f"{name}-*")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


if __name__ == "__main__":
    main()
