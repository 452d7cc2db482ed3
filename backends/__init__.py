"""Chips and how to run on them: the border, the reference, what all chips share, the chips, conformance."""
