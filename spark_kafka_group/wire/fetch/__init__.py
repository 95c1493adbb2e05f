"""Fetch over blocking sockets: the leaders, a connection to each, requests and responses as bytes."""
