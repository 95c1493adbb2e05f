"""Faults that have no cell yet."""

MISSING = (
    "SIGKILL and SIGSTOP of an executor's JVM on a cluster. (The Python workers of a local Spark have cells.)",
    "Expired certificates and tokens.",
    "A restart on another host, while the old one is only cut off. (driver-zombie has it on one host.)",
    "Retries and dead letters of a `RecordProcessor`.",
)
