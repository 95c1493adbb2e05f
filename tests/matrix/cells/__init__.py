"""The cells of the matrix, a family a file; importing this package registers them all."""

from matrix.cells import (
    brokers,
    clocks,
    disks,
    drivers,
    elections,
    logs,
    neighbours,
    network,
    operators,
    queries,
    retention,
    rights,
    transactions,
    workers,
)

FAMILIES = (
    drivers, workers, brokers, logs, elections, retention, disks, network, neighbours, operators, rights, transactions,
    queries, clocks,
)  # fmt: skip
"""In the order of the report; the family of logs has three files."""
