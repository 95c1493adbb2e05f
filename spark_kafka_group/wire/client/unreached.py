"""Whether an error means that no broker has answered, or is a broker's answer."""

from __future__ import annotations

import kafka.errors as kafka_errors

from spark_kafka_group.errors import LASTING, BrokerError, BrokerTimeoutError
from spark_kafka_group.wire.client.refusals import WrongAddressError


class AnswerError(ConnectionError):
    """Raised when the bytes of a connection are no response to the request, so that a host is there."""


NO_ANSWER = (kafka_errors.RetriableError, WrongAddressError)
"""Causes. A name without an address had one when the driver planned the task."""


def unreached(error: Exception) -> bool:
    """Whether a broker could not be reached, or did not answer. That passes once the broker is back."""
    if isinstance(error, (*LASTING, AnswerError)):
        return False
    if isinstance(error, OSError | BrokerTimeoutError):
        return True
    cause = error.__cause__
    answered = isinstance(cause, kafka_errors.BrokerResponseError)
    return isinstance(error, BrokerError) and isinstance(cause, NO_ANSWER) and not answered
