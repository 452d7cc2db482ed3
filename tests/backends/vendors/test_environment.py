"""Environments of vendors: built once, never used half-built, clear about what is missing."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from nrf.backends.border import Absent
from nrf.backends.vendors import environment
from nrf.errors import InputError

# Builds an environment for a vendor 'toy' with one small wheel; dies at the line that contains argv[1].
BUILD = """
    import os, signal, sys
    from nrf.backends.vendors import environment

    def say(line):
        print(line, flush=True)
        if sys.argv[1] and sys.argv[1] in line:
            os.kill(os.getpid(), signal.SIGKILL)

    environment.VENDORS["toy"] = environment.Vendor("toy", "toy", "import toy", "{python}")
    environment._requirements = lambda vendor: os.environ["TOY_WHEEL"]
    print("PYTHON", environment.build("toy", say), flush=True)
""".replace("{python}", f"{sys.version_info[0]}.{sys.version_info[1]}")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel = toy_wheel(tmp_path)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setenv("TOY_WHEEL", f"{wheel} --hash=sha256:{digest}")
    folders = [folder for folder in os.get_exec_path() if not (Path(folder) / "uv").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    return tmp_path / "cache"


def toy_wheel(folder: Path) -> Path:
    path = folder / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("toy.py", "answer = 42\n")
        wheel.writestr("toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
        wheel.writestr(
            "toy-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr("toy-1.0.dist-info/RECORD", "")
    return path


def build(die_at: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(BUILD), die_at]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_build_killed_half_way_is_never_used_and_done_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    for line in ("new environment", "Installing collected packages", "does it start?"):
        assert build(die_at=line).returncode == -9
        assert list(cache.glob("envs/toy-*/ready.json")) == []
    answer = build()
    assert answer.returncode == 0, answer.stderr
    python = answer.stdout.split("PYTHON ")[1].strip()
    assert subprocess.check_output([python, "-c", "import toy; print(toy.answer)"], text=True) == "42\n"
    assert list(temporary.iterdir()) == []  # nor what the installers of the killed ones had there


def test_a_second_build_does_nothing(cache: Path) -> None:
    first, second = build(), build()
    assert "Installing" in first.stdout
    assert second.stdout == f"PYTHON {first.stdout.split('PYTHON ')[1]}"


def test_an_environment_whose_stamp_is_damaged_is_not_used(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = environment.Vendor("toy", "toy", "import toy", "3")
    monkeypatch.setitem(environment.VENDORS, "toy", toy)
    monkeypatch.setattr(environment, "_requirements", lambda vendor: "toy")
    folder = cache / "envs" / f"toy-3-{environment._digest('toy')[:12]}"
    (folder / "bin").mkdir(parents=True, mode=0o700)
    (folder / "bin" / "python").symlink_to(sys.executable)
    good = json.dumps({"requirements": environment._digest("toy"), "content": environment._content(folder)})
    for text, used in ((good, True), ("", False), (good[:-9], False), ("[]", False)):
        (folder / "ready.json").write_text(text)
        assert (environment.absent("toy") is None) == used, text


def test_two_builds_at_once_wait_for_each_other(cache: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(BUILD), ""]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("Installing" in answer for answer in answers) == 1


def test_a_requirement_that_cannot_be_had_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_WHEEL", f"no-such-distribution==1.0 --hash=sha256:{'0' * 64}")
    answer = build()
    assert "InputError" in answer.stderr.splitlines()[-1]
    assert "no-such-distribution" in answer.stderr.splitlines()[-1]
    assert list(cache.glob("envs/toy-*/ready.json")) == []


# Does what we ask of uv with what is here, and writes down what it was asked for.
UV = """#!{python}
import os, subprocess, sys
with open(os.environ["DIARY"], "a") as diary:
    print(*sys.argv[1:], file=diary)
if sys.argv[1] == "venv":
    sys.exit(subprocess.call([sys.executable, "-m", "venv", sys.argv[-1]]))
python = sys.argv[sys.argv.index("--python") + 1]
sys.exit(subprocess.call([python, "-m", "pip", "install", *sys.argv[5:]]))
"""


def test_uv_makes_the_environment_and_brings_the_python(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV.format(python=sys.executable))
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent))  # and no Python 3.10
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("DIARY", str(tmp_path / "diary"))
    vendor = environment.Vendor("toy", "toy", "import toy", "3.10")
    monkeypatch.setitem(environment.VENDORS, "toy", vendor)
    monkeypatch.setattr(environment, "_requirements", lambda vendor: os.environ["TOY_WHEEL"])
    python = environment.build("toy", print)
    folder = python.parents[1]
    assert folder.name.startswith("toy-3.10-") and environment.probe("toy", python) == "1.0"
    assert (tmp_path / "diary").read_text().splitlines() == [
        f"venv --python 3.10 {folder}",
        f"pip install --python {python} --requirement {folder / 'requirements.txt'} --require-hashes "
        "--no-deps --only-binary :all:",
    ]
    assert environment.python_of("toy") == python


def test_no_python_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("NRF_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r"Python 3.10.*install uv.*pyenv install 3.10"):
        environment.build("lava")


def test_a_pyenv_shim_that_does_not_start_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    shim = tmp_path / "shims" / f"python{minor}"
    real = tmp_path / "versions" / f"{minor}.0" / "bin" / f"python{minor}"
    shim.parent.mkdir()
    real.parent.mkdir(parents=True)
    shim.write_text("#!/bin/sh\nexit 127\n")
    real.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for path in (shim, real):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(shim.parent))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert environment.find_python(environment.Vendor("x", "x", "", python=minor)) == real


def test_an_environment_whose_python_is_gone_or_content_changed_counts_as_missing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = Path(build().stdout.split("PYTHON ")[1].strip())
    vendor = environment.Vendor("toy", "toy", "import toy", "3.11")
    monkeypatch.setitem(environment.VENDORS, "toy", vendor)
    monkeypatch.setattr(environment, "_requirements", lambda vendor: os.environ["TOY_WHEEL"])
    assert environment.absent("toy") is None
    missing = Absent("no environment for toy", "nrf setup toy")
    (record,) = python.parents[1].glob("lib/*/site-packages/toy-1.0.dist-info/RECORD")
    before = record.read_bytes()
    record.write_bytes(before + b"evil.py,,\n")
    assert environment.absent("toy") == missing
    record.write_bytes(before)
    python.rename(python.with_name("was"))
    python.symlink_to(cache / "gone")
    assert environment.absent("toy") == missing
    python.unlink()
    python.with_name("was").rename(python)
    assert environment.python_of("toy") == python
    python.parents[1].chmod(0o777)
    with pytest.raises(InputError, match="others can write"):
        environment.python_of("toy")


def test_a_package_with_another_hash_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_WHEEL", os.environ["TOY_WHEEL"][:-64] + "0" * 64)
    said = build().stderr.splitlines()[-1]
    assert "InputError" in said and "DO NOT MATCH THE HASHES" in said


def test_only_where_packages_come_from_is_taken_of_the_users_configuration(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = file:///nowhere\nfind-links = /a\n\t/b\n[install]\nuser = true\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "no")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    answer = build()
    assert answer.returncode == 0, answer.stderr
    assert not (tmp_path / "elsewhere").exists()
    ours = {**environment._installer_settings(), **environment._sources(Path(sys.executable))}
    assert ours["PIP_INDEX_URL"] == "file:///nowhere" and ours["PIP_FIND_LINKS"] == "/a /b"
    assert ours["PIP_CONFIG_FILE"] == os.devnull and not {"PIP_TARGET", "PIP_USER"} & set(ours)


@pytest.mark.parametrize("vendor", environment.VENDORS)
def test_requirements_are_pinned_with_hashes(vendor: str) -> None:
    lines = environment._requirements(vendor).replace("\\\n", "").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins and all(re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", pin) for pin in pins)


@pytest.mark.parametrize(
    "vendor", [pytest.param(v, marks=pytest.mark.needs_vendor(v)) for v in environment.VENDORS]
)
def test_the_environment_starts(vendor: str) -> None:
    python = environment.python_of(vendor)
    assert python
    pin = f"{environment.VENDORS[vendor].distribution}=={environment.probe(vendor, python)}"
    assert f"{pin} \\" in environment._requirements(vendor).splitlines()
