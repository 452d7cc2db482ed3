"""Proof that a model still does the same thing on a chip: ladder, cases, judge, report.

conform(graph, chip, clips)    the ladder, as a report; `nrf.conform` is the same from files
"""

from nrf.backends.conformance.clips import Clip
from nrf.backends.conformance.ladder import conform
from nrf.backends.conformance.report import Check, Report

__all__ = ["Check", "Clip", "Report", "conform"]
