"""Graphs: NIR in and out, contract, validation, canonical form."""
