"""kafka-python's client, mended: connections, TLS, SASL, names, timeouts and metadata."""
