"""What a query shows of itself: its progress, counts and times, its event log, topics that it waits for."""
