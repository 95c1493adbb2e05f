"""Faults that have no cell yet."""

MISSING = ()
