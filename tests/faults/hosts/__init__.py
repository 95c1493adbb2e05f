"""Hosts on this machine, with brokers and a Spark cluster on them."""
