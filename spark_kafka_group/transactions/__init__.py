"""Exactly-once writes on the driver: a batch is planned, decided and ended, whatever crashes between two steps."""
