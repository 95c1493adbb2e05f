"""A query reports itself: its progress, counts and times, its event log, topics that it waits for."""
