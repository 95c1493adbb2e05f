"""SCRAM (RFC 5802) as Java's client has it, where kafka-python's has less.

A server's first message is looked at before a proof of the password is sent. The proof is as hard to break as the
server says: with one iteration an impostor can try as many passwords as it likes.

A client that authenticates by a delegation token (KIP-48) says so in its first message, by an extension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.scram import SaslMechanismScram, ScramClient
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest

LEAST_ITERATIONS = 4096  # the least that a server may ask for, as in Kafka: its brokers keep no password with fewer

OF_TOKEN = b",tokenauth=true"


class TokenId(str):
    """Id of a delegation token, in place of a user's name; the password is its HMAC."""

    __slots__ = ()


class TokenClient(ScramClient):  # type: ignore[misc]
    """Authenticates by a delegation token."""

    def first_message(self) -> bytes:
        """The client's, which has the extension behind the nonce."""
        message: bytes = super().first_message() + OF_TOKEN
        self.auth_message += OF_TOKEN
        return message


class SaslScram(SaslMechanismScram):  # type: ignore[misc]
    """kafka-python's mechanism, also for delegation tokens."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        if isinstance(self.username, TokenId):
            self._scram_client = TokenClient(self.username, config["sasl_plain_password"], self.mechanism)


for _name in ScramClient.MECHANISMS:
    register_sasl_mechanism(_name, SaslScram, overwrite=True)


def why_not(message: bytes) -> str | None:
    """Why a server's first message is refused; None if it is right, or not the first one."""
    try:
        # As kafka-python reads it, so that the checked value is the used value.
        iterations = int(dict(pair.split("=", 1) for pair in message.decode().split(","))["i"])
    except (ValueError, KeyError):
        return None  # without a number of iterations kafka-python sends no proof
    if iterations >= LEAST_ITERATIONS:
        return None
    return (
        f"it asks for SCRAM with {iterations} iterations, and fewer than {LEAST_ITERATIONS} are refused, as a password "
        f"could be computed from the proof. See whether kafka.bootstrap.servers names your brokers; if so, "
        f"set the user's password again (kafka-configs --alter --add-config 'SCRAM-SHA-512=[iterations=4096,…]')"
    )


def checked(conn: Any, refused: Callable[[str], Exception]) -> None:
    """Have `conn` of kafka-python's end with this error where a server's message is not to be answered."""
    send = conn._send_request

    def sent(request: Any, *args: Any, **more: Any) -> Any:
        answered = send(request, *args, **more)
        return looked_at(answered) if isinstance(request, SaslAuthenticateRequest | SaslBytesRequest) else answered

    async def looked_at(answered: Any) -> Any:
        response = await answered
        problem = why_not(bytes(response.auth_bytes or b"")) if not response.error_code else None
        if problem is not None:
            raise refused(problem)
        return response

    conn._send_request = sent
