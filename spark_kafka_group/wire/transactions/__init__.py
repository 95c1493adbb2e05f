"""Requests about transactions: of tasks that write in them, of the driver that ends them, and of a tool that looks."""
