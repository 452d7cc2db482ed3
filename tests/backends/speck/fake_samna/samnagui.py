"""Imported by Sinabs, never used in these tests."""
