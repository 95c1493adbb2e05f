"""What this package does as a guest in Spark's Python processes."""
