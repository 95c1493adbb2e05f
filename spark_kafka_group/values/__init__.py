"""What rooms pass to each other: offsets, tasks, metadata of commits, facts about transactions. No I/O but files."""
