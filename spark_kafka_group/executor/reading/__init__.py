"""How a task reads its ranges: fetches, retries, records that are gone or damaged, rows."""
