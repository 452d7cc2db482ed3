"""A classifier that a framework trained, on a chip: its classes are those of the framework itself."""

from pathlib import Path

import numpy as np
import pytest

from tests.frameworks.cases import FRAMEWORKS
from tests.frameworks.write_classifiers import bars, cells, conformed, train


@pytest.mark.needs_vendor("frameworks")
def test_a_classifier_of_snntorch_decides_on_loihi_as_in_snntorch(tmp_path: Path) -> None:
    (clips, labels), (test, truth) = bars(100, 0), bars(20, 1)
    np.savez(tmp_path / "data.npz", train=clips, train_labels=labels, test=test, test_labels=truth)
    folder = tmp_path / "snntorch"
    folder.mkdir()
    own = train(FRAMEWORKS["snntorch"], tmp_path / "data.npz", folder)
    report = conformed(FRAMEWORKS["snntorch"], folder, "loihi2", None)
    verdict, reference, framework, accuracy, _, failed = cells(report)
    assert verdict == "pass" and not failed
    assert reference == framework == "20 of 20"
    assert float(accuracy) == own > 0.6
    exact = [e.figures for e in report.measured if (e.runtime, e.rung) == ("reference", "golden")]
    golden = [figures["spikes_differ"] for figures in exact if "spikes_differ" in figures]
    assert golden == [0, 0]  # the reference is snnTorch, spike by spike
