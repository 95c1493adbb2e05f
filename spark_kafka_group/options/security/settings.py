"""Kafka's security settings of one connection, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_group.options.option import Section, names, option, text
from spark_kafka_group.options.security import option_values
from spark_kafka_group.text.foreign_text import Secret

if TYPE_CHECKING:
    from spark_kafka_group.options.security.jaas import LoginModule

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
STORE_TYPES = ("JKS", "PKCS12", "PEM")


@dataclass(frozen=True, repr=False)
class Security(Section):
    """Kafka's security settings; an attribute is named as the setting is, with underscores."""

    security_protocol: str = option(
        "kafka.security.protocol", option_values.one_of(*PROTOCOLS),
        "How to talk to brokers: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`.",
        default="PLAINTEXT",
    )  # fmt: skip
    sasl_mechanism: str | None = option(
        "kafka.sasl.mechanism", option_values.mechanism,
        "`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, `AWS_MSK_IAM` or `GSSAPI`.",
        shown="required with SASL",
    )  # fmt: skip
    sasl_jaas_config: LoginModule | None = option(
        "kafka.sasl.jaas.config", option_values.login_module,
        "Kafka's login module with its options, as Java clients have it: `…ScramLoginModule required username=\"…\" "
        "password=\"…\";`.",
        shown="required for `PLAIN` and `SCRAM`", secret=True,
    )  # fmt: skip
    sasl_login_callback_handler_class: str | None = option(
        "kafka.sasl.login.callback.handler.class", text,
        "OAUTHBEARER with tokens of your own: `module:Class` with `token()` and optionally `extensions()`.",
        shown="none",
    )  # fmt: skip
    sasl_client_callback_handler_class: str | None = option(
        "kafka.sasl.client.callback.handler.class", text,
        "Not needed. With `AWS_MSK_IAM` the class that Java's clients name is accepted, "
        "`software.amazon.msk.auth.iam.IAMClientCallbackHandler`.",
        shown="none",
    )  # fmt: skip
    sasl_kerberos_service_name: str | None = option(
        "kafka.sasl.kerberos.service.name", text,
        "GSSAPI: the first part of the brokers' principals, as `kafka` in `kafka/host@REALM`; also `serviceName` in "
        "`kafka.sasl.jaas.config`.",
        shown="required with `GSSAPI`",
    )  # fmt: skip
    sasl_oauthbearer_token_endpoint_url: Secret | None = option(
        "kafka.sasl.oauthbearer.token.endpoint.url", option_values.endpoint,
        "OAUTHBEARER: the URL to ask for tokens (client credentials), or `file:` and the path of a token. "
        "`http:` and `file:` have to be allowed, see [OAUTHBEARER](security.md#oauthbearer).",
        shown="none", secret=True,
    )  # fmt: skip
    sasl_oauthbearer_client_credentials_client_id: str | None = option(
        "kafka.sasl.oauthbearer.client.credentials.client.id", text,
        "OAUTHBEARER: the client's id at the token endpoint; also `clientId` in `kafka.sasl.jaas.config`.",
        shown="none",
    )  # fmt: skip
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = option(
        "kafka.sasl.oauthbearer.client.credentials.client.secret", option_values.secret,
        "OAUTHBEARER: the client's secret; also `clientSecret` in `kafka.sasl.jaas.config`.",
        shown="none", secret=True,
    )  # fmt: skip
    sasl_oauthbearer_scope: str | None = option(
        "kafka.sasl.oauthbearer.scope", text,
        "OAUTHBEARER: the scope to ask for; also `scope` in `kafka.sasl.jaas.config`.",
        shown="none",
    )  # fmt: skip
    ssl_truststore_location: str | None = option(
        "kafka.ssl.truststore.location", option_values.location,
        "A file with the certificates to trust, PEM, PKCS12 or JKS.",
        shown="the system's", secret=True,
    )  # fmt: skip
    ssl_truststore_password: Secret | None = option(
        "kafka.ssl.truststore.password", option_values.secret, "Password of a truststore that is PKCS12 or JKS.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_truststore_type: str | None = option(
        "kafka.ssl.truststore.type", option_values.one_of(*STORE_TYPES),
        "`PKCS12`, `PEM` or `JKS`, as Java has it. Not needed, as files show their kind.",
        shown="the file's kind",
    )  # fmt: skip
    ssl_truststore_certificates: str | None = option(
        "kafka.ssl.truststore.certificates", text, "The certificates to trust, PEM in the option itself.",
        shown="none",
    )  # fmt: skip
    ssl_keystore_location: str | None = option(
        "kafka.ssl.keystore.location", option_values.location,
        "A file with this client's private key and certificate chain, PEM, PKCS12 or JKS, for mutual TLS.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_keystore_password: Secret | None = option(
        "kafka.ssl.keystore.password", option_values.secret, "Password of a keystore that is PKCS12 or JKS.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_keystore_type: str | None = option(
        "kafka.ssl.keystore.type",
        option_values.one_of(*STORE_TYPES),
        "As `kafka.ssl.truststore.type`.",
        shown="the file's kind",
    )
    ssl_keystore_key: Secret | None = option(
        "kafka.ssl.keystore.key", option_values.secret, "This client's private key, PEM in the option itself.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_keystore_certificate_chain: str | None = option(
        "kafka.ssl.keystore.certificate.chain", text,
        "The certificate chain to `kafka.ssl.keystore.key`, PEM in the option itself.",
        shown="none",
    )  # fmt: skip
    ssl_key_password: Secret | None = option(
        "kafka.ssl.key.password", option_values.secret, "Password of a private key that is PEM or in a JKS store.",
        shown="none", secret=True,
    )  # fmt: skip
    ssl_endpoint_identification_algorithm: str = option(
        "kafka.ssl.endpoint.identification.algorithm", option_values.identification,
        "`https`: a broker's certificate must be for the name it is reached by. Empty: any name.",
        default="https",
    )  # fmt: skip
    ssl_protocol: str = option(
        "kafka.ssl.protocol", option_values.newest_tls, "The newest version of TLS to speak.", default="TLSv1.3"
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        "kafka.ssl.enabled.protocols", option_values.tls_versions, "Versions of TLS to speak.",
        default=option_values.TLS_PROTOCOLS, shown="`TLSv1.2,TLSv1.3`",
    )  # fmt: skip
    ssl_cipher_suites: tuple[str, ...] = option(
        "kafka.ssl.cipher.suites", names,
        "Cipher suites to offer, by Java's names. Name all suites of TLS 1.3, or none.",
        default=(), shown="OpenSSL's",
    )  # fmt: skip

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        """Whether connections are authenticated by SASL."""
        return self.security_protocol.startswith("SASL_")

    def given_with(self, prefix: str) -> list[str]:
        """Names of the options that are not at their defaults, and begin so after ``kafka.``."""
        return [name for name in self.given() if name.startswith(f"kafka.{prefix}")]
