"""The cells of the matrix, in a file for each kind of fault; importing this package registers them all."""

from faults.cells import (
    brokers,
    clocks,
    clusters,
    credentials,
    disks,
    drivers,
    elections,
    everything,
    logs,
    neighbours,
    network,
    operators,
    processors,
    queries,
    restarts,
    retention,
    rights,
    sink_held,
    sink_storms,
    sinks,
    transactions,
)

FILES = (
    drivers, restarts, clusters, brokers, logs, elections, disks, network, neighbours, operators, retention,
    rights, credentials, transactions, queries, sinks, sink_held, sink_storms, processors, clocks,
    everything,
)  # fmt: skip
"""In the order of the report."""
