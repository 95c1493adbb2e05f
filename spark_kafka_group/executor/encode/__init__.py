"""Arrow columns to Kafka's record batches, by one of two twins that give the same bytes or the same error for the same
columns."""
