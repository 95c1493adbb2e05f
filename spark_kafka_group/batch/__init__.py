"""Batch reads as functions: one that commits to the group, and one that reads only the rows of a condition."""
