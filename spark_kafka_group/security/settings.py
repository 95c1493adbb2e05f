"""Kafka's security settings of one connection, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spark_kafka_group.security.secret import Secret

if TYPE_CHECKING:
    from spark_kafka_group.security.jaas import LoginModule

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER")
TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
STORE_TYPES = ("JKS", "PKCS12", "PEM")
PREFIXES = ("security_", "sasl_", "ssl_")


@dataclass(frozen=True)
class Security:
    """Kafka's security settings; an attribute is named as the setting is, with underscores."""

    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_jaas_config: LoginModule | None = None
    sasl_login_callback_handler_class: str | None = None
    sasl_oauthbearer_token_endpoint_url: Secret | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = None
    sasl_oauthbearer_scope: str | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_password: Secret | None = None
    ssl_truststore_type: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_password: Secret | None = None
    ssl_keystore_type: str | None = None
    ssl_keystore_key: Secret | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_key_password: Secret | None = None
    ssl_endpoint_identification_algorithm: Literal["https", ""] = "https"
    ssl_protocol: str = "TLSv1.3"
    ssl_enabled_protocols: tuple[str, ...] = TLS_PROTOCOLS
    ssl_cipher_suites: tuple[str, ...] = ()

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def sasl(self) -> bool:
        """Whether connections are authenticated by SASL."""
        return self.security_protocol.startswith("SASL_")

    def given(self, prefix: str) -> list[str]:
        """Names, as Kafka has them, of the settings with this prefix that are not at their defaults."""
        fields = type(self).__dataclass_fields__.values()
        return [
            option_name(field.name)
            for field in fields
            if field.name.startswith(prefix) and getattr(self, field.name) != field.default
        ]


def option_name(attribute: str) -> str:
    """The option that an attribute of :class:`Security` holds."""
    return f"kafka.{attribute.replace('_', '.')}"
