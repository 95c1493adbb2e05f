"""The cells of the matrix, a family a file; importing this package registers them all."""

from matrix.cells import (
    brokers,
    clusters,
    disks,
    drivers,
    logs,
    neighbours,
    network,
    operators,
    queries,
    restarts,
    rights,
    transactions,
    workers,
)

FAMILIES = (
    drivers, restarts, workers, clusters, brokers, logs, disks, network, neighbours, operators, rights, transactions,
    queries,
)  # fmt: skip
"""In the order of the report."""
