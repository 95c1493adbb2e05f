"""From Kafka's security settings to kafka-python's, and credentials out of its log: at DEBUG it prints requests."""

from __future__ import annotations

import functools
import logging
from typing import Any

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest

from spark_kafka_group.options.security import Security
from spark_kafka_group.wire.client import scram

log = logging.getLogger(__name__)


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


install()


def security_configs(security: Security) -> dict[str, Any]:
    """Settings of kafka-python's clients. Raises OptionError when a file has changed, or is missing on an executor."""
    configs: dict[str, Any] = {"security_protocol": security.security_protocol}
    if security.tls:
        from spark_kafka_group.options.security.tls import client_context

        configs["ssl_context"] = client_context(security)
    if not security.sasl:
        return configs
    from spark_kafka_group.options.security.credentials import AwsCredentials, Kerberos, UserPassword, credentials
    from spark_kafka_group.options.security.mechanisms import MECHANISMS

    known = credentials(security)
    mechanism = MECHANISMS[str(security.sasl_mechanism)]
    configs["sasl_mechanism"] = mechanism.name
    if not security.tls:
        _warn_of_plaintext(mechanism.name, mechanism.seen)
    if isinstance(known, UserPassword):
        configs |= mechanism.user(known.username, known.password)
        if known.of_token:
            configs["sasl_plain_username"] = scram.TokenId(configs["sasl_plain_username"])
        return configs
    if isinstance(known, AwsCredentials):
        from spark_kafka_group.wire.client.msk_iam import keys_of

        return configs | {"sasl_oauth_token_provider": keys_of(known)}
    if isinstance(known, Kerberos):
        from spark_kafka_group.wire.client.kerberos import tickets_of

        return configs | {"sasl_oauth_token_provider": tickets_of(known)}
    from spark_kafka_group.wire.client.tokens import tokens_of

    return configs | {"sasl_oauth_token_provider": tokens_of(known)}


@functools.cache
def _warn_of_plaintext(mechanism: str, seen: str) -> None:
    """Once in a process."""
    log.warning(
        "kafka.security.protocol is SASL_PLAINTEXT, which encrypts nothing: anyone on the network path to the brokers "
        "%s (%s), and all records. Set it to SASL_SSL, and use a listener of the brokers that has TLS",
        seen, mechanism,
    )  # fmt: skip
