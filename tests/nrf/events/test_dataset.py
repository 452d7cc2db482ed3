"""Datasets on disk: the same clips for any number of workers, resumed, measured, read back."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from nrf.errors import InputError
from nrf.events import load_frames
from nrf.events.dataset import Dataset, DatasetConfig, clip_path, make_dataset, paper_config, read_description
from nrf.events.preview import preview
from nrf.events.synthetic import motion

NRF = [sys.executable, "-c", "from nrf.cli import main; main()"]
SMALL = paper_config("spatial", clips=6, resolution=100)


def made(folder: Path, config: DatasetConfig = SMALL, workers: int = 1) -> Path:
    assert sorted(make_dataset(folder, config, workers)) == list(range(config.clips))
    return folder


def test_clips_do_not_depend_on_the_number_of_workers(tmp_path):
    one, two = Dataset(made(tmp_path / "one")), Dataset(made(tmp_path / "two", workers=2))
    for index in range(6):
        for left, right in zip(one[index], two[index], strict=True):
            assert np.array_equal(left, right)
        assert np.array_equal(one[index][0], SMALL.clip(index).frames())
    assert read_description(one.folder) == read_description(two.folder)


def test_a_killed_run_goes_on_and_gives_the_same(tmp_path):
    whole, part = made(tmp_path / "whole"), tmp_path / "part"
    words = ["--clips", "6", "--resolution", "100", "--workers", "1", "--no-preview", "-o", str(part)]
    with subprocess.Popen([*NRF, "data", *words], stderr=subprocess.DEVNULL) as run:
        while not clip_path(part, 1).exists():
            assert run.poll() is None
            time.sleep(0.005)
        run.kill()
    assert not read_description(part).complete
    with pytest.raises(InputError, match="not complete; run the same `nrf data` again"):
        Dataset(part)
    before = clip_path(part, 0).stat().st_mtime_ns
    made(part)
    assert clip_path(part, 0).stat().st_mtime_ns == before, "finished clips are kept"
    assert (part / "dataset.json").read_text() == (whole / "dataset.json").read_text()
    for index in range(6):
        assert np.array_equal(Dataset(part)[index][0], Dataset(whole)[index][0])


def test_a_dataset_can_grow(tmp_path):
    made(tmp_path / "a", replace(SMALL, clips=2))
    assert len(Dataset(made(tmp_path / "a"))) == 6


def test_a_dataset_never_shrinks(tmp_path):
    made(tmp_path / "a")
    before = (tmp_path / "a" / "dataset.json").read_bytes()
    with pytest.raises(InputError, match=r"dataset\.json: 6 clips are here, more than 2; ask for at least 6"):
        make_dataset(tmp_path / "a", replace(SMALL, clips=2))
    assert (tmp_path / "a" / "dataset.json").read_bytes() == before


def without(name: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with np.load(path) as archive:
            rest = {key: archive[key] for key in archive.files if key != name}
        np.savez(path, **rest)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:1000]), "not a readable .npz file"),
        (lambda path: path.write_bytes(b""), "not a readable .npz file"),
        (Path.unlink, "no such file"),
        (without("coordinates"), "no array 'coordinates'"),
        (without("signal"), "no array 'signal'"),
        (without("t"), "no t; expected t, x, y, p"),
    ],
)
def test_a_damaged_clip_is_named_and_made_anew(tmp_path, damage, message):
    config = replace(SMALL, clips=3)
    folder = made(tmp_path / "a", config)
    about, clip = (folder / "dataset.json").read_text(), clip_path(folder, 1)
    damage(clip)
    with pytest.raises(
        InputError, match=rf"000001\.npz: .*{message}.*; run the same `nrf data` again"
    ) as error:
        Dataset(folder)[1]
    assert "\n" not in str(error.value)
    assert np.array_equal(Dataset(made(folder, config))[1][0], config.clip(1).frames())
    assert (folder / "dataset.json").read_text() == about


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.pop("complete"), "key 'complete' is missing"),
        (lambda about: about.update(complete="yes"), "complete is 'yes', expected bool"),
        (lambda about: about.update(clips=2.5), "clips is 2.5, expected int"),
        (lambda about: about.update(shapes=[]), r"shapes is \[\], expected table"),
        (lambda about: about["shapes"].update(noise="loud"), "shapes.noise is 'loud', expected float"),
        (lambda about: about["shapes"].update(line=-1), r"shapes.line is -1, expected float >= 0"),
        (lambda about: about.update(format=2), "format is 2, expected one of 1"),
    ],
)
def test_a_damaged_description_is_named(tmp_path, change, message):
    folder = made(tmp_path / "a", replace(SMALL, clips=1))
    about = json.loads((folder / "dataset.json").read_text())
    change(about)
    (folder / "dataset.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=rf"dataset\.json: .*{message}"):
        Dataset(folder)


def test_another_dataset_is_never_mixed_in(tmp_path):
    made(tmp_path / "a", replace(SMALL, clips=2))
    with pytest.raises(InputError, match="another dataset is here, with seed 0, not 7; choose"):
        made(tmp_path / "a", replace(SMALL, seed=7))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(InputError, match="holds something else already"):
        made(tmp_path / "b")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["thesis.tex"]
    with pytest.raises(InputError, match=r"thesis\.tex/clips: cannot be made a folder: Not a directory"):
        made(tmp_path / "b" / "thesis.tex")


def test_a_clip_is_an_event_file_like_any_other(tmp_path):
    data = Dataset(made(tmp_path / "a"))
    frames = load_frames(clip_path(data.folder, 3), 1e-3, (2, 100, 100))
    assert np.array_equal(frames, data[3][0])


def test_the_published_generator_moves_at_an_eighth_of_the_speed_and_fills_the_shapes():
    text, code = (paper_config("temporal", 4, generator=name).shapes for name in ("text", "code"))
    assert code.velocities == pytest.approx([velocity / 8 for velocity in text.velocities])
    assert (code.line, code.noise, code.angle, code.steps) == (0.0, 0.003, 10.0, 128)
    rng = np.random.default_rng(0)
    turned = [motion(rng, code, 40.0, 0.08)[1] for _ in range(50)]
    assert np.min(turned) >= 0 and np.deg2rad(8) < np.max(turned) <= np.deg2rad(10)
    with pytest.raises(InputError, match="generator 'cod' is not known; did you mean 'code'"):
        paper_config("temporal", 4, generator="cod")


def test_conditions_take_turns():
    config = paper_config("temporal", clips=8, resolution=150)
    assert [config.clip(i).velocity for i in range(5)] == [0.08, 0.16, 0.32, 0.64, 0.08]
    assert config.shapes.scales == (20.0,)


def test_paper_sets_are_what_the_paper_says():
    spatial, temporal = (paper_config(name, clips=1).shapes for name in ("spatial", "temporal"))
    assert spatial.scales == (10.0, 20.0, 40.0, 80.0) and temporal.velocities == (0.16, 0.32, 0.64, 1.28)
    for config in (spatial, temporal):
        assert (config.resolution, config.steps, config.dt, config.noise) == (300, 50, 1e-3, 0.005)
        assert config.shapes == ("triangle", "square", "circle") and config.supersampling == 8
    with pytest.raises(InputError, match="dataset 'shear' is not known; known are spatial, temporal"):
        paper_config("shear", clips=1)


# Per mille of pixels active in a step: the shapes alone, and with noise, smallest or slowest first.
# They move only if what is drawn, or how it becomes events, changes; docs/data.md gives them for more clips.
DENSITIES = {
    "spatial": [(0.537, 5.54), (1.146, 6.16), (2.498, 7.47), (4.830, 9.82)],
    "temporal": [(0.681, 5.68), (1.308, 6.32), (2.498, 7.47), (3.213, 8.21)],
}


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_of_the_paper_sets_hold_steady(tmp_path, name):
    folder = made(tmp_path / name, paper_config(name, clips=16))
    rows = read_description(folder).densities_per_mille
    measured = [(row.signal, row.with_noise) for row in rows]
    assert measured == [pytest.approx(pair, rel=0.01) for pair in DENSITIES[name]]


def test_bad_folders_are_named(tmp_path):
    with pytest.raises(InputError, match=r"dataset\.json: no such file; make a dataset with `nrf data"):
        Dataset(tmp_path)
    (tmp_path / "dataset.json").write_text("{}")
    with pytest.raises(InputError, match=r"dataset\.json: key 'name' is missing"):
        Dataset(tmp_path)
    (tmp_path / "dataset.json").write_text("{")
    with pytest.raises(InputError, match="not the description of a dataset"):
        Dataset(tmp_path)
    with pytest.raises(InputError, match="clips is 0, expected int >= 1"):
        replace(SMALL, clips=0)
    with pytest.raises(InputError, match="0 workers make no clips"):
        made(tmp_path, workers=0)


def test_reading_beyond_the_end_stops_iteration(tmp_path):
    data = Dataset(made(tmp_path / "a", replace(SMALL, clips=2)))
    assert len(list(data)) == 2


def test_preview_shows_every_condition(tmp_path):
    folder = made(tmp_path / "a", replace(SMALL, clips=4))
    still, moving = preview(folder)
    with Image.open(still) as image:
        assert image.size == (4 * 200 + 12, 2 * 200 + 4)
        colours = {colour for _, colour in image.getcolors(maxcolors=16)}
        assert {(40, 90, 200), (210, 50, 40), (20, 140, 60)} <= colours
    with Image.open(moving) as image:
        assert image.n_frames == 50


def nrf(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*NRF, *words], capture_output=True, text=True, check=False)


def test_command_makes_a_dataset_and_tells_what_is_in_it(tmp_path):
    words = ("data", "--dataset", "temporal", "--clips", "4", "--resolution", "80", "--workers", "1")
    answer = nrf(*words, "-o", str(tmp_path / "a"), "--json")
    assert answer.returncode == 0, answer.stderr
    about = json.loads(answer.stdout)
    assert about["complete"] and len(about["densities_per_mille"]) == 4
    assert all(row["with_noise"] > row["signal"] for row in about["densities_per_mille"])
    again = nrf(*words, "-o", str(tmp_path / "a"), "--noise", "0")
    assert again.returncode == 2 and again.stderr.count("\n") == 1, "no progress bar before the error"
    assert "noise 0.005, not 0.0" in again.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resolution", "100000"), "resolution is 100000, expected int <= 65536"),
        (("--resolution", "20000"), "GiB to make, the limit is 4"),
        (("--resolution", "0"), "resolution is 0, expected int >= 1"),
        (("--noise", "nan"), "noise is nan, expected float >= 0"),
        (("--workers", "0"), "0 workers make no clips"),
        (("--clips", "0"), "clips is 0, expected int >= 1"),
        (("--dataset", "shear"), "dataset 'shear' is not known"),
    ],
)
def test_command_refuses_in_one_line_before_anything_is_made(tmp_path, words, message):
    answer = nrf("data", *words, "-o", str(tmp_path / "a"))
    assert answer.returncode == 2 and answer.stdout == ""
    assert answer.stderr.startswith("error: ") and answer.stderr.count("\n") == 1 and message in answer.stderr
    assert not (tmp_path / "a").exists()
