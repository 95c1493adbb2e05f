"""The cells of the matrix, a family a file; importing this package registers them all."""

from matrix.cells import (
    brokers,
    clusters,
    credentials,
    disks,
    drivers,
    logs,
    neighbours,
    network,
    operators,
    processors,
    queries,
    restarts,
    rights,
    transactions,
    workers,
)

FAMILIES = (
    drivers, restarts, workers, clusters, brokers, logs, disks, network, neighbours, operators, rights, credentials,
    transactions, queries, processors,
)  # fmt: skip
"""In the order of the report."""
