"""The records that a query has to read now: ends of logs, delayed, paused and held-back partitions, long polls."""
