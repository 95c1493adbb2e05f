"""The cells of the matrix, a family a file; importing this package registers them all."""

from matrix.cells import (
    brokers,
    credentials,
    disks,
    drivers,
    logs,
    neighbours,
    network,
    operators,
    processors,
    queries,
    rights,
    transactions,
    workers,
)

FAMILIES = (
    drivers, workers, brokers, logs, disks, network, neighbours, operators, rights, credentials, transactions, queries,
    processors,
)  # fmt: skip
"""In the order of the report."""
