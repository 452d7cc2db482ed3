"""What may be read, how much of it, and by whom a folder is written."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nrf.containers import parse_json, parse_toml
from nrf.errors import LINES, WIDTH, InputError
from nrf.files import atomic_write, cache_folder, input_file, read_text, require_memory, sole_writer


def test_pipes_devices_and_endless_links_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    for path, words in (
        (tmp_path / "pipe.npz", "is a pipe, socket or device"),
        (Path("/dev/zero"), "is a pipe, socket or device"),
        (tmp_path, "is a folder"),
        (tmp_path / "loop.npz", "ymbolic link"),
        (tmp_path / "none.npz", "no such file"),
        (tmp_path / "a\0b", "null"),
    ):
        with pytest.raises(InputError, match=words):
            input_file(path)


def test_memory_is_asked_for_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    require_memory("a.npz", 1e9, "its arrays")
    with pytest.raises(InputError, match=r"a\.npz: its arrays need 3\.0 GB of memory, .* NRF_MEMORY="):
        require_memory("a.npz", 3e9, "its arrays")
    monkeypatch.setenv("NRF_MEMORY", "4")
    require_memory("a.npz", 3e9, "its arrays")


def test_a_text_of_many_megabytes_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("#" * 5_000_000)
    with pytest.raises(InputError, match="5,000,000 bytes of text"):
        read_text(tmp_path / "a.toml")


def test_messages_are_printable_and_bounded() -> None:
    text = str(InputError("\n       ".join(["a\x1b[2J\u202e" + "x" * 10_000] * 100)))
    lines = text.split("\n")
    assert len(lines) == LINES + 1 and lines[-1].strip() == "and 80 more"
    assert all(line.isprintable() and len(line) < WIDTH + 100 for line in lines)


def test_what_is_written_may_be_read_by_those_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "a.txt") as part:
            part.write_text("whole")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o640]


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    code = "from pathlib import Path; from nrf.files import sole_writer; sole_writer(Path({!r})).__enter__()"
    other = [sys.executable, "-c", code.format(str(tmp_path))]
    with sole_writer(tmp_path):
        answer = subprocess.run(other, capture_output=True, text=True, check=False)
        assert "another process writes into it" in answer.stderr
    assert subprocess.run(other, check=False).returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    tmp_path.chmod(0o777)
    with pytest.raises(InputError, match="others can write to this folder"):
        cache_folder()
    monkeypatch.setenv("NRF_CACHE", str(tmp_path / "mine"))  # they could exchange it
    with pytest.raises(InputError, match=f"{tmp_path}: others can write to this folder"):
        cache_folder()
    tmp_path.chmod(0o1777)  # as /tmp, where everybody's names are their own
    assert cache_folder() == tmp_path / "mine"


def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path: Path) -> None:
    code = "import sys; from nrf.cli import main; sys.argv[0] = 'nrf'; main()"
    words = ["data", "-o", str(tmp_path / "d"), "--clips", "5000", "--workers", "1", "--no-preview"]
    with subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "d" / "clips" / "000000.npz").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and said.strip().endswith("error: interrupted")
    assert not list((tmp_path / "d").rglob(".*")), "no part of a file is left"


KILLED = """
import os, signal, sys
from pathlib import Path
from nrf.files import atomic_write, scratch
with scratch() as folder, atomic_write(sys.argv[1]) as part:
    part.write_text("half")
    print(folder, part, flush=True)
    if len(sys.argv) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.read()
"""


def test_what_a_killed_process_left_goes_with_the_next_and_what_a_living_one_uses_stays(
    tmp_path: Path,
) -> None:
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    code = [sys.executable, "-c", KILLED, str(tmp_path / "out.txt")]
    (tmp_path / ".out.mine.txt").write_text("a hidden file of the user's")
    left = subprocess.run([*code, "die"], env=environment, capture_output=True, text=True, check=False)
    assert left.returncode == -9 and all(Path(path).exists() for path in left.stdout.split())
    with subprocess.Popen(
        code, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as living:
        assert living.stdin and living.stdout
        used = living.stdout.readline().split()
        assert not any(Path(path).exists() for path in left.stdout.split())
        again = subprocess.run(code, env=environment, input="", capture_output=True, text=True, check=False)
        assert again.returncode == 0 and all(Path(path).exists() for path in used)
        living.communicate("")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".out.mine.txt", "out.txt", "tmp"]


def test_workers_end_with_their_parent_however_it_ends(tmp_path: Path) -> None:
    code = """
import sys
from joblib import delayed
from nrf.parallel import parallel
def work(folder):
    import os, time
    open(f"{folder}/{os.getpid()}", "w").close()
    time.sleep(60)
parallel(2)(delayed(work)(sys.argv[1]) for _ in range(2))
"""
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as process:
        while len(workers := [int(path.name) for path in tmp_path.iterdir()]) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    end = time.monotonic() + 30  # of a busy machine; they would stay for minutes
    while left := [worker for worker in workers if alive(worker)]:
        assert time.monotonic() < end, left
        time.sleep(0.05)


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("text", [".".join("a" * 10**5) + " = 1", "[" + " . ".join(["'a'"] * 10**5) + "]"])
def test_a_key_of_very_many_parts_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_toml(text)  # the library would take minutes
    assert time.process_time() - began < 2


def test_dots_in_texts_and_short_keys_are_none_of_its_parts() -> None:
    text = "a.b.c = '" + "1.2, 3.4; " * 100 + "'\n[d.'e.f']\ng = 1.5\n"
    assert parse_toml(text)["d"] == {"e.f": {"g": 1.5}}


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\uDFFF": 1}', b'"\xed\xa0\x80"', '["\\ud83d"]'])
def test_half_a_character_in_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"surrogates|invalid"):
        parse_json(text)


def test_a_whole_character_of_two_halves_is_read() -> None:
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"
