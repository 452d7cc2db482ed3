"""Chips and how to run on them: border, float reference, lowering, the chips, vendors, conformance.

A chip is one package that offers a `border.Backend` under the entry point group `nrf.chips`, and one TOML
file with its figures. Everything else finds it there; see CONTRIBUTING.md.
"""
