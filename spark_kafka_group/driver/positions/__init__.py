"""Where a query stands in each partition, who is right about that, and what has happened to its logs and topics."""
