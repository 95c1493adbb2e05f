"""A query's place in its group as numbers, and how Prometheus gets them."""
