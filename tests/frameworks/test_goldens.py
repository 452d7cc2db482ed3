"""Every dialect gives the spikes that its framework gave, on recordings that are committed with the code."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import nir
import pytest

from nrf.backends.conformance.golden import recognise
from nrf.export import nir_files
from tests.frameworks.cases import FRAMEWORKS, Flags, Framework
from tests.frameworks.goldens import FOLDER, VERSIONS, case_names, unpack
from tests.frameworks.witnesses import Pair, pairs

CASES = [(name, case) for name, entry in FRAMEWORKS.items() for case in case_names(entry)]
LOST = [(name, case) for name, case in CASES if case in FRAMEWORKS[name].lost]
KEPT = [pair for pair in CASES if pair not in LOST]
TELLING = [(name, case) for name, case in KEPT if case not in FRAMEWORKS[name].told]
REFUSED = {  # files that nir 1.0.8 refuses or that hold no number, and what the repair says
    ("snntorch", "leaky_beta_one"): "a decay of 1",
    ("snntorch", "conv_leaky_at_once_subtract"): "groups take 3 channels together",
    ("sinabs", "lif_default"): "scalar parameters stand for all of its",
    ("sinabs", "conv_iaf_threshold"): "groups take 3 channels together",
    ("norse", "lif_box_default"): "scalar parameters stand for all of its",
    ("norse", "iaf_default"): "scalar parameters stand for all of its",
    ("norse", "lif_box_batched"): "are a batch or time axis, dropped",
    ("rockpool", "lif_default"): "are a batch or time axis, dropped",
    ("rockpool", "lif_neuron_default"): "are a batch or time axis, dropped",
}

Pairs = dict[tuple[str, str], Pair]


@pytest.fixture(scope="module")
def goldens(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    folder = tmp_path_factory.mktemp("goldens")
    return {
        (name, pair.case): pair for name, entry in FRAMEWORKS.items() for pair in pairs(unpack(entry, folder))
    }


@pytest.fixture(autouse=True, scope="module")
def _every_file_is_read_once() -> Iterator[None]:
    """Twenty dialects read the same file: HDF5 would take most of the time."""
    contents: dict[str, object] = {}
    read = nir_files.read_hdf5

    def remembered(path: Path, what: str) -> object:
        if str(path) not in contents:
            contents[str(path)] = read(path, what)
        return deepcopy(contents[str(path)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nir_files, "read_hdf5", remembered)
        yield


def names(cases: list[tuple[str, str]]) -> Iterator[str]:
    return (f"{name}-{case}" for name, case in cases)


def test_every_framework_is_there_with_its_versions_and_small() -> None:
    versions = json.loads(VERSIONS.read_text())
    assert list(versions) == list(FRAMEWORKS)
    assert all(name in packages for name, packages in versions.items())
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 1.5e6
    assert len(CASES) >= 130


@pytest.mark.parametrize(("name", "case"), KEPT, ids=names(KEPT))
def test_the_dialect_gives_the_spikes_of_the_framework(goldens: Pairs, name: str, case: str) -> None:
    match = goldens[name, case].match(FRAMEWORKS[name])
    assert match.spikes > 0
    assert match.differ == 0, match.departs


@pytest.mark.parametrize(("name", "case"), TELLING, ids=names(TELLING))
def test_the_dialect_is_recognised(goldens: Pairs, name: str, case: str) -> None:
    pair = goldens[name, case]
    exact = [m.flags for m in recognise(pair.model, pair.golden) if not m.differ and not m.refused]
    assert written(FRAMEWORKS[name], FRAMEWORKS[name].flags_of(case)) in exact


def written(framework: Framework, flags: Flags) -> str:
    """Flags as on the command line."""
    words = [f"--{key.replace('_', '-')} {value}" for key, value in flags.items()]
    return " ".join([f"--dialect {framework.name}", *words])


@pytest.mark.parametrize(("name", "case"), LOST, ids=names(LOST))
def test_what_an_exporter_loses_is_lost(goldens: Pairs, name: str, case: str) -> None:
    """If one of these is exact one day, the exporter has learnt to write it, and the table is wrong."""
    pair = goldens[name, case]
    assert pair.match(FRAMEWORKS[name]).differ > 0, FRAMEWORKS[name].lost[case]
    assert all(match.differ or match.refused for match in recognise(pair.model, pair.golden))


@pytest.mark.parametrize(("name", "case"), REFUSED, ids=names(list(REFUSED)))
def test_a_file_that_nir_refuses_is_read_and_its_repair_named(goldens: Pairs, name: str, case: str) -> None:
    pair = goldens[name, case]
    if case != "leaky_beta_one":  # nir reads infinite time constants, and nobody can compute with them
        with pytest.raises(ValueError, match="type mismatch"):
            nir.read(pair.model)
    repairs = pair.read(FRAMEWORKS[name]).repairs
    assert any(REFUSED[name, case] in sentence for sentence in repairs), repairs


def test_every_refused_golden_names_a_repair(goldens: Pairs) -> None:
    refused = 0
    for (name, case), pair in goldens.items():
        try:
            nir.read(pair.model)
        except ValueError:
            refused += 1
            assert pair.read(FRAMEWORKS[name]).repairs, (name, case)
    assert refused >= 30


def test_a_wrong_dialect_is_noticed(goldens: Pairs) -> None:
    """The comparison can fail: no default of another framework gives these spikes."""
    pair = goldens["snntorch", "leaky_default"]
    exact = [m.flags for m in recognise(pair.model, pair.golden) if not m.differ and not m.refused]
    assert exact == ["--dialect snntorch"]
