"""Chips as data: limits, number formats and tolerances, each figure with its source."""
