"""The committed recordings: one network for every case of every framework, one zip file per framework.

They prove the dialects where no framework is installed. `make goldens` makes them anew.
"""

import json
import tempfile
import zipfile
from pathlib import Path

from tests.frameworks.cases import FRAMEWORKS, Framework
from tests.frameworks.witnesses import make_networks

FOLDER = Path(__file__).parent / "goldens"
VERSIONS = FOLDER / "versions.json"
MOMENT = (1980, 1, 1, 0, 0, 0)  # of every file in a zip: the same content makes the same bytes


def unpack(framework: Framework, folder: Path) -> Path:
    """The files of a framework, in a folder that has its name."""
    with zipfile.ZipFile(FOLDER / f"{framework.name}.zip") as archive:
        archive.extractall(folder / framework.name)
    return folder / framework.name


def case_names(framework: Framework) -> list[str]:
    """All cases of a framework, without unpacking them."""
    with zipfile.ZipFile(FOLDER / f"{framework.name}.zip") as archive:
        return [name.rsplit("_", 1)[0] for name in archive.namelist() if name.endswith(".nir")]


def refresh() -> None:
    """Have every framework make its networks again; needs all environments."""
    versions = {}
    for framework in FRAMEWORKS.values():
        with tempfile.TemporaryDirectory() as name:
            versions[framework.name] = make_networks(framework, Path(name), first=0)
            pack(framework, Path(name))
    VERSIONS.write_text(json.dumps(versions, indent=1) + "\n")


def pack(framework: Framework, folder: Path) -> None:
    """Zip what a witness wrote."""
    with zipfile.ZipFile(FOLDER / f"{framework.name}.zip", "w") as archive:
        for path in sorted(folder.iterdir()):
            entry = zipfile.ZipInfo(path.name, MOMENT)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
