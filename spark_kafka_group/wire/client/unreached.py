"""Whether an error says that no broker has answered, or is an answer."""

from __future__ import annotations

import kafka.errors as kafka_errors

from spark_kafka_group.errors import LASTING, BrokerError, BrokerTimeoutError
from spark_kafka_group.wire.client.refusals import UnresolvedError


class AnswerError(ConnectionError):
    """What came over a connection is no response to what was asked, so somebody is there."""


NO_ANSWER = (kafka_errors.RetriableError, kafka_errors.UnknownBrokerIdError, UnresolvedError)
"""Causes; a name that has no address had one when the driver planned the task."""


def unreached(error: Exception) -> bool:
    """Whether a broker could not be reached, or did not answer: that passes when it is back, however long it takes."""
    if isinstance(error, (*LASTING, AnswerError)):
        return False
    if isinstance(error, OSError | BrokerTimeoutError):
        return True
    cause = error.__cause__
    answered = isinstance(cause, kafka_errors.BrokerResponseError)
    return isinstance(error, BrokerError) and isinstance(cause, NO_ANSWER) and not answered
