"""Faults that have no cell yet."""

MISSING = (
    "SIGKILL and SIGSTOP of an executor's JVM on a cluster. (The Python workers of a local Spark have cells.)",
    "An unclean election among three brokers. (A log that loses its end has: a reader sees the same.)",
    "Retention that deletes records that are not read. (Deleted records have cells.)",
    "Clocks that are an hour off.",
    "A restart on another host, while the old one is only cut off. (driver-zombie has it on one host.)",
)
