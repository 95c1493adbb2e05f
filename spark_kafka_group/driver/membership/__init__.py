"""A query in its consumer group: joining, rebalances, other members and other sources of the same query."""
