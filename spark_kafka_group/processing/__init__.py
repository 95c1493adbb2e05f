"""Records to a user's function, with retries, order and dead letters: `RecordProcessor`, and its tasks on executors."""
