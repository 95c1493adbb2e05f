"""Faults that have no cell yet."""

MISSING = (
    "An unclean election among three brokers. (A log that loses its end has: a reader sees the same.)",
    "Retention that deletes records that are not read. (Deleted records have cells.)",
    "Clocks that are an hour off.",
)
