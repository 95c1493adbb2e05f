"""Contradictions between security settings, checked before any network call."""

from __future__ import annotations

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.security.settings import Security


def check(security: Security) -> None:
    """See whether the settings make sense together. Reads the files they name.

    Raises
    ------
    OptionError
        Without the value of any secret.
    """
    protocol = security.security_protocol
    if not security.sasl and (useless := security.given_with("sasl.")):
        raise OptionError(
            f"{useless[0]} needs kafka.security.protocol SASL_PLAINTEXT or SASL_SSL; it is {protocol}, so no "
            f"client would be authenticated"
        )
    if not security.tls and (useless := security.given_with("ssl.")):
        raise OptionError(
            f"{useless[0]} needs kafka.security.protocol SSL or SASL_SSL; it is {protocol}, so nothing would be "
            f"encrypted"
        )
    if security.sasl:
        from spark_kafka_group.options.security.credentials import credentials

        credentials(security)
    if security.tls:
        from spark_kafka_group.options.security.tls import client_context

        problem = _store_problem(security)
        if problem is not None:
            raise OptionError(problem)
        client_context(security)


def _store_problem(security: Security) -> str | None:
    """Why a store is refused: it has to be a file, or PEM in the options themselves."""
    trusted, key, chain = "ssl.truststore.certificates", "ssl.keystore.key", "ssl.keystore.certificate.chain"
    given = set(security.given_with("ssl."))
    for location, inside in (("ssl.truststore.location", trusted), ("ssl.keystore.location", key)):
        if {f"kafka.{location}", f"kafka.{inside}"} <= given:
            return f"kafka.{location} and kafka.{inside} are both given: one of them"
    needs = [
        ("ssl.truststore.password", ("ssl.truststore.location",)),
        ("ssl.truststore.type", ("ssl.truststore.location", trusted)),
        ("ssl.keystore.password", ("ssl.keystore.location",)),
        ("ssl.keystore.type", ("ssl.keystore.location", key)),
        ("ssl.key.password", ("ssl.keystore.location", key)),
        (chain, (key,)),
        (key, (chain,)),
    ]
    for name, wanted in needs:
        if f"kafka.{name}" in given and not any(f"kafka.{other}" in given for other in wanted):
            return f"kafka.{name} needs {' or '.join(f'kafka.{other}' for other in wanted)}"
    for store, inside in (("truststore", trusted), ("keystore", key)):
        kind = getattr(security, f"ssl_{store}_type")
        if f"kafka.{inside}" in given and kind not in (None, "PEM"):
            return f"kafka.ssl.{store}.type ({kind}) contradicts kafka.{inside}, which is PEM"
    return None
