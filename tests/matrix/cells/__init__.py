"""The cells of the matrix, a family a file; importing this package registers them all."""

from matrix.cells import (
    brokers,
    disks,
    drivers,
    everything,
    logs,
    neighbours,
    network,
    operators,
    queries,
    rights,
    transactions,
    workers,
)

FAMILIES = (
    drivers,
    workers,
    brokers,
    logs,
    disks,
    network,
    neighbours,
    operators,
    rights,
    transactions,
    queries,
    everything,
)
"""In the order of the report."""
