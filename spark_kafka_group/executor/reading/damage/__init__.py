"""onCorruptRecord: record batches that executors cannot read."""
