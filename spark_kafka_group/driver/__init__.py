"""The driver's half: membership, positions, what a micro-batch reads, and the commit of what has succeeded."""
