"""Where a query stands in each partition, who is right about that, and changes of its logs and topics."""
