"""What a query has to read now: ends of logs, what is due, paused or held back, and when it has to look again."""
