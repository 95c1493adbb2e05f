"""Authenticating a connection again, before a broker's connections.max.reauth.ms or the life of its token is over."""

from __future__ import annotations

import kafka.errors as kafka_errors
from kafka.net.connection import SaslReauthenticator


class ReauthenticationError(kafka_errors.KafkaConnectionError):  # type: ignore[misc]
    """Ends a connection that could not be authenticated again. The next one says whether credentials are wrong."""


class Reauthenticator(SaslReauthenticator):  # type: ignore[misc]
    """kafka-python's, whose failure is the loss of a connection, as any other.

    kafka-python fails requests that wait meanwhile with the cause, which would end a query: 1. A token has a second to
    live, as its endpoint is away. 2. The connection is authenticated again with it, and soon once more. 3. A broker
    takes that within a second for a request out of order: ILLEGAL_SASL_STATE.
    """

    async def _do_reauth(self) -> None:
        try:
            await super()._do_reauth()
        except Exception as error:
            raise ReauthenticationError(f"authenticating again: {error}") from error
