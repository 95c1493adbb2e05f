"""The driver's half: membership, positions, the ranges of a micro-batch, and the commit of one that has succeeded."""
