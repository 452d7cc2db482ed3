"""The HTML report in a real browser, as a reader would see it."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from test_classes import classifier
from test_classes import clips as labelled
from test_ladder import clips, tracker

from nrf.backends import reference
from nrf.backends.border import backend_of, load_chip
from nrf.backends.conformance import Clip, conform
from nrf.backends.conformance.cases import load_case
from nrf.backends.conformance.page import Overview, as_script_data, render, write_page
from nrf.backends.conformance.suite import run_case


@pytest.fixture
def failing(mirror, tmp_path) -> Path:
    path = tmp_path / "fail.html"
    write_page(path, conform(tracker(), mirror, clips(2), runtimes=["builtin", "noise"]))
    return path


def test_a_report_opens_without_console_errors_and_says_its_verdict(page, mirror, tmp_path):
    write_page(tmp_path / "pass.html", conform(tracker(), mirror, clips(), runtimes=["builtin", "same"]))
    for width, dark in ((1400, False), (1400, True), (390, False), (390, True)):
        page.open(tmp_path / "pass.html", width=width, dark=dark)
        assert page.evaluate("document.documentElement.dataset.ready") == "yes"
        assert page.evaluate("document.getElementById('verdict').textContent") == "pass"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.errors == []


def test_no_verdict_is_neither_green_nor_red_and_says_why(page, mirror, tmp_path):
    made_up = [dataclasses.replace(clip, made_up=True) for clip in clips()]
    write_page(tmp_path / "none.html", conform(tracker(), mirror, made_up, runtimes=["builtin"]))
    page.open(tmp_path / "none.html")
    assert page.evaluate("document.getElementById('verdict').className") == "verdict none"
    assert "--input" in page.evaluate("document.getElementById('doubts').textContent")
    first = page.evaluate("document.querySelector('#checks tbody tr').dataset.verdict")
    assert first == "no verdict" and page.errors == []


def test_dark_is_dark(page, failing):
    light, dark = [], []
    for shades, scheme in ((light, False), (dark, True)):
        page.open(failing, dark=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shades += [int(value) for value in re.findall(r"\d+", colour)[:3]]
    assert sum(dark) < 200 < 600 < sum(light)


def test_the_player_plays_and_stops_at_the_end(page, failing):
    page.open(failing)
    assert 5 <= int(page.evaluate("document.getElementById('step').value")) <= 15  # not at the empty start
    page.evaluate("show(0)")
    page.evaluate("document.getElementById('speed').value = 50")
    page.evaluate("document.getElementById('play').click()")
    page.wait_for("document.getElementById('step').value > 3")
    assert page.evaluate("document.getElementById('play').textContent") == "Pause"
    page.wait_for("document.getElementById('play').textContent === 'Play'")
    assert page.evaluate("document.getElementById('step').value") == "19"
    assert "step 19 of 19" in page.evaluate("document.getElementById('player-step').textContent")
    assert page.errors == []


def test_the_player_draws_events_and_all_tracks(page, failing):
    page.open(failing)
    names = page.evaluate("[...document.querySelectorAll('#player-legend .key')].map((k) => k.textContent)")
    assert names == ["truth", "reference", "builtin", "noise"]
    painted = """(() => {
        const c = document.getElementById("player");
        const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let n = 0;
        for (let k = 3; k < d.length; k += 4) n += d[k] > 0;
        return n / (c.width * c.height);
    })()"""
    assert 0.01 < page.evaluate(painted) < 0.9


def test_a_failing_report_shows_the_failing_node_first(page, failing):
    page.open(failing)
    first = page.evaluate("[...document.querySelector('#checks tbody tr').cells].map((c) => c.textContent)")
    assert first[0] == "lif1" and first[1] == "noise" and first[-1] == "fail"
    assert page.evaluate("document.getElementById('verdict').classList.contains('fail')")
    assert "lif1" in page.evaluate("document.getElementById('divergence').textContent")
    assert page.evaluate("document.getElementById('raster-run').value") == "noise"


def test_the_table_sorts_and_filters(page, failing):
    page.open(failing)
    column = "[...document.querySelectorAll('#checks tbody tr')].map((r) => r.cells[0].textContent)"
    if page.evaluate("!at('more').hidden"):
        page.evaluate("at('more').click()")
    values = "[...document.querySelectorAll('#checks td[data-key=value]')].map((c) => c.textContent)"
    page.evaluate("document.querySelector('#checks th[data-key=node] button').click()")
    up = page.evaluate(column)
    assert up == sorted(up)
    page.evaluate("document.querySelector('#checks th[data-key=node] button').click()")
    assert page.evaluate(column) == sorted(up, reverse=True)
    page.evaluate("document.querySelector('#checks th[data-key=value] button').click()")
    numbers = [float(text.replace(",", "")) for text in page.evaluate(values) if text]
    assert len(numbers) > 5 and numbers == sorted(numbers)
    page.evaluate("document.querySelectorAll('#filters button')[1].click()")
    shown = page.evaluate("[...document.querySelectorAll('#checks tbody tr')].map((r) => r.dataset.verdict)")
    assert shown and set(shown) == {"fail"}


def test_rasters_mark_what_only_one_side_has(page, failing):
    page.open(failing)
    data = page.evaluate("view.rasters[0].runs.noise.filter((_, k) => k % 3 === 2)")
    assert set(data) == {0, 1, 2}
    same = page.evaluate("view.rasters[0].runs.builtin.filter((_, k) => k % 3 === 2)")
    assert set(same) == {0}


def test_cores_show_what_they_hold_and_which_are_free(page, tmp_path):
    report = run_case(load_case("deep_chain"), load_chip("speck2f"), ["builtin"])
    write_page(tmp_path / "cores.html", report)
    page.open(tmp_path / "cores.html")
    held = page.evaluate("[...document.querySelectorAll('#cores .core b')].map((b) => b.textContent)")
    assert len(held) == 9 and sorted(set(held)) == ["free", *(f"neurons{n}" for n in range(4))]
    assert page.evaluate("document.getElementById('cores-note').textContent") == "4 of 9 cores in use"
    assert page.evaluate("document.querySelectorAll('#cores .meter').length") >= 4
    assert page.errors == []


def test_names_from_graphs_are_text_never_markup(page, mirror, tmp_path):
    case = load_case("strange_names")
    hostile = dataclasses.replace(case.graph, name="</script><img src=x onerror=alert(1)>")
    report = run_case(dataclasses.replace(case, graph=hostile), mirror, ["builtin"])
    text = render(report)
    assert "<img" not in text and "<!--<script>" not in text
    write_page(tmp_path / "names.html", report)
    page.open(tmp_path / "names.html")
    assert "onerror" in page.evaluate("document.title")
    assert page.evaluate(
        "document.querySelector('#checks tbody').textContent.includes('<!--<script>{neurons} %s')"
    )
    assert page.evaluate("document.images.length") == 0
    assert page.errors == []


def test_script_data_cannot_leave_its_element():
    text = as_script_data({"a": "</script><!--"})
    assert "<" not in text and "\\u003c/script>" in text


def test_inputs_that_are_no_image_have_no_player(page, mirror, tmp_path):
    case = load_case("linear")
    write_page(tmp_path / "vector.html", run_case(case, mirror, ["builtin"]))
    page.open(tmp_path / "vector.html")
    assert page.evaluate("document.getElementById('player-section').hidden")
    assert page.evaluate("!document.getElementById('raster-section').hidden")
    assert page.errors == []


def test_a_refused_model_still_makes_a_page(page, mirror, register, tmp_path):
    from nrf.findings import Finding

    refused = [Finding("too_big", "error", "conv1", "needs 9 cores, the chip has 1", "use a smaller one")]
    register("mirror", dataclasses.replace(backend_of(mirror), check=lambda graph, chip: refused))
    frames = np.zeros((2, 2, 10, 12), np.float32)
    report = conform(tracker(), mirror, [Clip("none", frames)])
    assert report.verdict == "fail" and report.failures[0].node == "conv1"
    write_page(tmp_path / "refused.html", report)
    page.open(tmp_path / "refused.html")
    assert "conv1" in page.evaluate("document.querySelector('#checks tbody tr').textContent")
    assert page.evaluate("document.getElementById('verdict').className") == "verdict na"  # a limit, no fault
    assert "needs 9 cores" in page.evaluate("document.getElementById('refusal').textContent")
    assert page.errors == []


def test_the_top_says_what_was_compared_with_what(page, mirror, tmp_path):
    write_page(tmp_path / "top.html", conform(tracker(), mirror, clips(2), runtimes=["same", "shaky"]))
    page.open(tmp_path / "top.html")
    sentence = page.evaluate("document.getElementById('sentence').textContent")
    said = (
        "in simulation: same|on the chip itself: shaky|the reference, which is our own run|2 clips of yours"
    )
    assert all(words in sentence for words in said.split("|")) and "nothing was assumed" in sentence
    assumed = dataclasses.replace(tracker(), origins={"fire": "assumed"})
    assert "Nobody stated fire gt" in conform(assumed, mirror, clips(), runtimes=["same"]).sentence


def test_rungs_and_figures_are_explained(page, failing):
    page.open(failing)
    hovers = page.evaluate("[...document.querySelectorAll('#checks abbr')].map((a) => a.title)")
    assert hovers and all(hovers)
    legend = page.evaluate("document.getElementById('rungs').textContent")
    assert "bit-exact" in legend and "taught" in legend and "L3" in legend


def test_the_first_divergence_is_told_in_proportion(page, failing, mirror, tmp_path):
    page.open(failing)
    loud = page.evaluate("at('divergence').className + at('divergence').textContent")
    assert loud.startswith("callout bad") and " differ between noise and " in loud and "channel " in loud
    loose = {"L0": {}, "L2": {"f1_min": 0.0}, "L3": {"px_median_max": 99.0}}
    report = conform(tracker(), mirror, clips(), runtimes=["noise"], tolerances=loose)
    report = dataclasses.replace(report, checks=[c for c in report.checks if c.verdict != "fail"])
    write_page(tmp_path / "calm.html", report)
    page.open(tmp_path / "calm.html")
    assert page.evaluate("document.getElementById('divergence').className") == "callout calm"


def test_every_clip_can_be_looked_at(page, failing):
    page.open(failing)
    assert page.evaluate("[...document.getElementById('clip').options].length") == 2
    before = page.evaluate("JSON.stringify(view.player.events)")
    page.evaluate("at('clip').value = 1; at('clip').onchange()")
    assert page.evaluate("JSON.stringify(view.player.events)") != before
    assert page.evaluate("document.getElementById('player-clip').textContent").startswith("clip 1")
    assert page.errors == []


def test_classes_are_shown_with_their_confusion_matrix(page, mirror, tmp_path):
    limits = {"L3": {"agreement_min": 0.9}}
    report = conform(classifier(), mirror, labelled(12), runtimes=["builtin", "noise"], tolerances=limits)
    write_page(tmp_path / "classes.html", report)
    for width in (1400, 390):
        page.open(tmp_path / "classes.html", width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("at('classes-run').value = 'noise'; at('classes-run').onchange()")
    cells = "[...document.querySelectorAll('#confusion td')].map((c) => Number(c.textContent) || 0)"
    shown = page.evaluate(cells)
    assert sum(shown) == 12
    differ = page.evaluate("document.querySelectorAll('#classes-clips tr').length") - 1
    assert differ == sum(clip["label"] != clip["classes"]["classes"]["noise"] for clip in report.clips)
    assert page.errors == []


def test_work_energy_and_changes_have_their_sources(page, tmp_path):
    report = run_case(load_case("conv2d_dilation"), load_chip("speck2f"), ["builtin"])
    write_page(tmp_path / "work.html", report)
    page.open(tmp_path / "work.html", width=390)
    text = page.evaluate("document.getElementById('work-section').textContent")
    for words in ("synaptic operations", "resting power", "advisory", "busiest core"):
        assert words in text
    assert "dilation written out" in page.evaluate("document.getElementById('changes').textContent")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.errors == []


def test_a_tuned_graph_shows_what_tuning_did(page, mirror, tmp_path):
    facts = {"target": "mirror", "kept": "tuned", "setting": "floor -1"}
    tuned = json.dumps(facts | {"original": {"name": "float.nir", "checksum": "0123"}})
    graph = dataclasses.replace(classifier(), metadata={"tuned": tuned})
    golden = [dataclasses.replace(c, golden=reference.run(classifier(1), c.frames)) for c in labelled(6)]
    report = conform(graph, mirror, golden, runtimes=["builtin"])
    write_page(tmp_path / "tuned.html", report)
    page.open(tmp_path / "tuned.html", width=390)
    entry = next(
        e for e in report.measured if (e.rung, e.node, e.runtime) == ("golden", "classes", "builtin")
    )
    text = page.evaluate("document.getElementById('changes').textContent")
    agree = f"{entry.figures['clips_agree']:.0f} of {entry.figures['clips_decided']:.0f} decided clips agree"
    for words in ("float.nir, 0123", "spikes, original and chip", "answers, original and chip", agree):
        assert words in text
    assert "It was tuned for this chip" in page.evaluate("document.body.textContent")
    assert page.errors == []


def test_several_reports_share_a_page_without_frames(page, mirror, tmp_path):
    one = conform(tracker(), mirror, clips(), runtimes=["builtin"])
    two = run_case(load_case("deep_chain"), load_chip("speck2f"), ["builtin"])
    rows = [["a", "pass", ""], ["b", "does not fit", "Speck has no leaky neurons"]]
    both = Overview("Two", "on one page", ["model", "verdict", "why"], rows, [0, 1])
    write_page(tmp_path / "both.html", one, two, overview=both)
    for width in (1400, 390):
        page.open(tmp_path / "both.html", width=width)
        assert page.evaluate("document.querySelectorAll('iframe').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert (
            page.evaluate("document.querySelector('#overview-table .badge.na').textContent") == "does not fit"
        )
        page.evaluate("document.querySelectorAll('#overview-table button')[1].click()")
        assert "deep_chain" in page.evaluate("document.getElementById('model').textContent")
    assert page.errors == []
