"""The cells of the matrix, a family a file; importing this package registers them all."""

from matrix.cells import brokers, drivers, workers

FAMILIES = (drivers, workers, brokers)
"""In the order of the report."""
