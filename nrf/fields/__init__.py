"""Receptive fields: in space, in time, and in both."""
