"""Sending record batches: the batches of each partition in order, who sends them, and what refused them."""
