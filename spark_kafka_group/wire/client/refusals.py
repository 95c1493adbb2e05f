"""Why a connection cannot be made, also for a broker's age, and what to change."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import kafka.errors as kafka_errors
from kafka.protocol.consumer import FetchRequest

from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.wire.client.scram import TokenId
from spark_kafka_group.wire.fetch.response import IDS_FROM, VERSIONS

if TYPE_CHECKING:
    from spark_kafka_group.options.security.mechanisms import Mechanism


HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH = 62, 64  # OpenSSL's X509_V_ERR_...
PROTOCOL = "kafka.security.protocol"

NO_ADDRESS = "this name has no address"
NO_LISTENER = "no broker listens there (ECONNREFUSED)"
CLOSED_IN_HANDSHAKE = "the connection was closed during the TLS handshake"
CLOSED_BY_BROKER = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of a TLS handshake that the broker ends. Debian's Python 3.11 has the second also without an alert."""
TIMED_OUT = "timed out"
TLS_ALERT, HTTP = b"\x15\x03", b"HTTP/"
"""How answers begin: of a listener with TLS to a client without, and of a web server."""
NOT_THERE = ("ECONNREFUSED", NO_ADDRESS)
"""Errors without a listener, so that the listener's protocol is not in question."""


class RefusedError(kafka_errors.KafkaError):  # type: ignore[misc]
    """Raised for a connection that fails until a user changes the setting that the text names."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnsupportedError(RefusedError):
    """Raised for a broker whose version is not supported."""


class WrongAddressError(RefusedError):
    """Raised when no address in kafka.bootstrap.servers is that of a broker."""


def mechanism_of(config: Mapping[str, Any]) -> Mechanism | None:
    """The SASL mechanism of connections; None without SASL."""
    if config["sasl_mechanism"] is None:
        return None
    from spark_kafka_group.options.security.mechanisms import MECHANISMS

    return MECHANISMS[config["sasl_mechanism"]]


def explained(address: str, error: Exception, config: Mapping[str, Any], first: bytes = b"") -> Any:
    """The error that ended an attempt to connect, as one that says what to change. `first`: the first bytes that came
    from there."""
    cause: Exception = error
    while cause.args and isinstance(cause.args[0], Exception):
        cause = cause.args[0]
    if isinstance(cause, kafka_errors.KafkaProtocolError):
        return RefusedError(f"{address}: {_why_no_kafka(cause, config, first)}")
    why = _why_refused(cause, config)
    if why is not None:
        return RefusedError(f"{address}: {why}")
    if isinstance(cause, RefusedError):
        return cause
    if isinstance(cause, BrokerError):  # of a source of tokens
        return kafka_errors.KafkaConnectionError(str(cause))
    if isinstance(cause, CLOSED_BY_BROKER):
        cause = kafka_errors.KafkaConnectionError(CLOSED_IN_HANDSHAKE)
    message = cause.args[0] if isinstance(cause, kafka_errors.KafkaError) and cause.args else cause
    return kafka_errors.KafkaConnectionError(f"{address}: {message}{_hint(str(message), config)}")


def is_certain(error: Exception) -> bool:
    """Whether an error of :func:`explained` is so whenever it is looked at: no time is over in it."""
    return isinstance(error, RefusedError) or any(words in str(error) for words in NOT_THERE)


def _hint(message: str, config: Mapping[str, Any]) -> str:
    if any(words in message for words in NOT_THERE):
        return ""
    return _unanswered(config) if TIMED_OUT in message else suspicion(config)


def _unanswered(config: Mapping[str, Any]) -> str:
    """The likely causes when nothing comes back from an address."""
    return (
        f" (are host and port right in kafka.bootstrap.servers, does a firewall let them pass, and is it a listener "
        f"for {PROTOCOL} {config['security_protocol']}?)"
    )


def suspicion(config: Mapping[str, Any]) -> str:
    """The likely cause when a broker closes connections without an error."""
    return f" (if that goes on: is it a listener for {PROTOCOL} {config['security_protocol']}?)"


def _why_refused(error: Exception, config: Mapping[str, Any]) -> str | None:
    mechanism, protocol = config["sasl_mechanism"], config["security_protocol"]
    if isinstance(error, AuthenticationError):
        return str(error)
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        message = str(error.args[0] if error.args else "").removeprefix("SaslAuthenticationFailedError: ")
        return _why_not_let_in(config, f"({mechanism}): {message}")
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return (
            f"this listener does not have kafka.sasl.mechanism {mechanism}: take one of the broker's "
            f"sasl.enabled.mechanisms"
        )
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return f"this listener takes no SASL: set {PROTOCOL} to {protocol.removeprefix('SASL_')}"
    if isinstance(error, ssl.SSLError):
        return _why_no_tls(error, config)
    return None


def _why_no_kafka(error: Exception, config: Mapping[str, Any], first: bytes) -> str:
    protocol = config["security_protocol"]
    if first.startswith(TLS_ALERT) and not protocol.endswith("SSL"):
        with_tls = "SASL_SSL" if protocol.startswith("SASL_") else "SSL"
        return f"its answer is a TLS alert, so it is a TLS listener: set {PROTOCOL} to {with_tls}"
    if first.startswith(HTTP):
        return "its answer is HTTP, so it is no Kafka broker: correct kafka.bootstrap.servers, or advertised.listeners"
    return f"its answer is not Kafka's protocol as this client knows it ({error.args[0]}): is it a Kafka broker?"


def _why_not_let_in(config: Mapping[str, Any], cause: str) -> str:
    known = mechanism_of(config)
    if known is not None and not known.takes_password:
        return f"the broker does not take the token {cause}"
    if isinstance(config["sasl_plain_username"], TokenId):
        return (
            f"the broker does not take delegation token {config['sasl_plain_username']} with this HMAC {cause}: see "
            f"username and password in kafka.sasl.jaas.config, and whether the token has expired "
            f"(kafka-delegation-tokens --describe)"
        )
    return (
        f"the broker does not take user {config['sasl_plain_username']} with this password {cause}: see username and "
        f"password in kafka.sasl.jaas.config"
    )


def _why_no_tls(error: ssl.SSLError, config: Mapping[str, Any]) -> str | None:
    if isinstance(error, (*CLOSED_BY_BROKER, ssl.SSLSyscallError)):
        return None  # a broker that is stopped ends connections like that too
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _why_untrusted(error)
    if "ALERT" in reason and any(word in reason for word in ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")):
        return (
            f"the broker ended the TLS handshake ({reason}): it wants a client certificate that it trusts. Set "
            f"kafka.ssl.keystore.location (or .key); a CA of the broker's truststore has to have signed the "
            f"certificate in it. Or both sides have no cipher suite or version of TLS in common"
        )
    if "ALERT" in reason or ("VERSION" in reason and "NUMBER" not in reason) or "PROTOCOL" in reason:
        return (
            f"the broker and this client do not agree on TLS ({reason}): see kafka.ssl.enabled.protocols, "
            f"kafka.ssl.protocol and kafka.ssl.cipher.suites"
        )
    without = "SASL_PLAINTEXT" if config["security_protocol"].startswith("SASL_") else "PLAINTEXT"
    return f"its answer is not TLS ({reason}): is it a listener for {PROTOCOL} {without}?"


def _why_untrusted(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH):
        return (
            f"the broker's certificate is for another name: {error.verify_message.rstrip('.')}. Reach it by a "
            f"name in its certificate (kafka.bootstrap.servers, the broker's advertised.listeners), or set "
            f"kafka.ssl.endpoint.identification.algorithm to an empty string, and names are not checked"
        )
    return (
        f"the broker's certificate is not trusted: {error.verify_message}. The certificate of the CA that "
        f"signed it has to be in kafka.ssl.truststore.location (or .certificates)"
    )


def why_not(broker: Any) -> str | None:
    """Why a broker cannot be read from; None if it can. Fetch 4 came with the record format that has headers, in Kafka
    0.11, and with lookups that make no topic. `broker`: kafka-python's BrokerVersionData."""
    oldest, newest = broker.api_versions.get(FetchRequest.API_KEY, (VERSIONS[0], VERSIONS[-1]))
    if newest < VERSIONS[0]:
        return f"this broker is Kafka {broker.broker_version_str}, and 0.11 or newer is needed"
    if oldest >= IDS_FROM:  # topics whose ids are not known are fetched by name
        return (
            f"this broker takes requests Fetch {oldest} to {newest}, and this version of spark_kafka_group sends "
            f"{VERSIONS[0]} to {IDS_FROM - 1}: a newer one is needed"
        )
    return None
