"""The records of ``__consumer_offsets`` as values."""
