"""What rooms pass to each other: offsets, tasks, notes of commits and of transactions. No I/O but files."""
