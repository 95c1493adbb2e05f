"""Produce over sockets that never block: leaders, a connection to each, requests and responses as bytes."""
