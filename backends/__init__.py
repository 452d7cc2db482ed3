"""Chips and how to run on them: border, reference, lowering, Loihi 2, Speck 2f, conformance."""
