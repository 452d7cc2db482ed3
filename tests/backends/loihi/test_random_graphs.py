"""Random NIR graphs, branches, loops, delays and biases: refused by a rule, or close to the reference."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings

from nrf.backends import reference
from nrf.backends.loihi.check import check
from nrf.backends.lowering.metrics import aligned, f1, matched
from nrf.export import canonical
from nrf.findings import errors
from tests.backends.loihi.chip import LOIHI, lower, run
from tests.export.graphs import Case, cases

STEPS = 60


def test_random_graphs_are_refused_by_name_or_come_close() -> None:
    """Fed with the reference's spikes, so that loops do not turn one lost spike into chaos."""
    total: Counter[str] = Counter()

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases())
    def one(case: Case) -> None:
        graph = canonical(case.graph, replace(case.contract, reset="zero", v_min=None))
        if errors(check(graph, LOIHI)):
            total["refused"] += 1
            return
        frames = np.random.default_rng(0).integers(0, 2, (STEPS, *graph.shapes[graph.input]))
        wanted = reference.run(graph, frames.astype(np.float32))
        found = run(lower(graph, LOIHI), frames, teacher=wanted)
        for name in wanted.spikes:
            r, c = aligned(wanted.spikes[name], found.spikes[name], STEPS, found.latency(name))
            total.update(lowered=1, matched=matched(r, c), wanted=r.count, found=c.count)

    one()
    assert total["lowered"] > 20
    assert f1(total["matched"], total["wanted"], total["found"]) > 0.98, total
