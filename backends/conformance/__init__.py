"""Proof that a model still does the same thing on a chip: metrics, ladder, cases, report."""
