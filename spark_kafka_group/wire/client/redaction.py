"""Keeps credentials out of kafka-python's log: at DEBUG it prints every request, those that authenticate included."""

from __future__ import annotations

import logging

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest

TALKATIVE = ("kafka.protocol.parser", "kafka.net.connection")
SECRET_REQUESTS = (SaslAuthenticateRequest, SaslBytesRequest)


def hide_credentials(record: logging.LogRecord) -> bool:
    """A filter of a logger that lets everything through: authentication by its name, bytes sent by their number."""
    if isinstance(record.args, tuple):
        record.args = tuple(_harmless(argument) for argument in record.args)
    return True


def _harmless(argument: object) -> object:
    if isinstance(argument, SECRET_REQUESTS):
        return f"{type(argument).__name__}(hidden)"
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"{len(argument)} bytes"
    return argument


def install() -> None:
    """Filter the loggers that print requests. Harmless when repeated."""
    for name in TALKATIVE:
        logging.getLogger(name).addFilter(hide_credentials)
