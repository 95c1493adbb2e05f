"""Some records of many partitions, read in this process: for tools and notebooks, which join no group."""
