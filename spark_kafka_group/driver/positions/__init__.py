"""The positions of a query in its partitions, by checkpoint or group, and changes of its logs and topics."""
