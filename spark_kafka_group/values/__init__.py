"""What rooms pass to each other: offsets, tasks, notes of commits and of transactions. Values only, no I/O but files."""
