"""From the text of a security option to a value; a ValueError's text follows the option's name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from spark_kafka_group.text.foreign_text import Secret

if TYPE_CHECKING:
    from spark_kafka_group.options.security.jaas import LoginModule


TLS_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
LONGEST_NAME, LONGEST_PATH = 255, 4096  # the most bytes of a file's name, and of its path
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The form of a token in RFC 6750, and for brokers."""
OF_A_TOKEN = "letters, digits and -._~+/, then perhaps = (RFC 6750)"
BASE64_OF_KEY = r"MI[A-Za-z0-9+/\s]{80,}=*"
"""Keys and certificates are sequences of ASN.1 that are longer than 127 bytes."""


def secret(raw: str) -> Secret:
    """Text that is never shown, taken as it is."""
    if not raw:
        raise ValueError("must not be empty")
    return Secret(raw)


def token(raw: str) -> Secret:
    """A bearer token, perhaps with the line end of a file that it was read from."""
    if not TOKEN.fullmatch(raw.strip()):
        raise ValueError(f"must be a token: {OF_A_TOKEN}")
    return Secret(raw.strip())


def location(raw: str) -> str:
    """The path of a file. A text that cannot be one is not shown: it may be a key that belongs in another option."""
    path = raw.strip()
    if not path:
        raise ValueError("must not be empty")
    names = path.split("/")
    too_long = len(path.encode()) > LONGEST_PATH or max(len(name.encode()) for name in names) > LONGEST_NAME
    if is_key(path) or not path.isprintable() or too_long:
        raise ValueError(
            "must be the path of a file. Give PEM itself in kafka.ssl.keystore.key, "
            "kafka.ssl.keystore.certificate.chain or kafka.ssl.truststore.certificates"
        )
    return path


def is_key(text: str) -> bool:
    """Whether a text is, or has in it, PEM or the base64 of a key."""
    return "-----BEGIN" in text or re.fullmatch(BASE64_OF_KEY, text.strip()) is not None


def login_module(raw: str) -> LoginModule:
    """A JAAS configuration."""
    from spark_kafka_group.options.security import jaas

    return jaas.login_module(raw)


def one_of(*words: str) -> Callable[[str], str]:
    """One of Kafka's words, which are in capitals."""

    def parse(raw: str) -> str:
        if raw.strip().upper() not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return raw.strip().upper()

    return parse


def mechanism(raw: str) -> str:
    """A SASL mechanism."""
    from spark_kafka_group.options.security.mechanisms import MECHANISMS

    name = raw.strip().upper()
    if name not in MECHANISMS:
        raise ValueError(f"must be one of {', '.join(MECHANISMS)}")
    return name


def identification(raw: str) -> str:
    """How a broker's certificate is compared with its address: https, or empty for not at all."""
    if raw.strip().lower() not in ("https", ""):
        raise ValueError("must be https, or empty so that names are not checked")
    return raw.strip().lower()


def newest_tls(raw: str) -> str:
    """Kafka's ssl.protocol."""
    name = raw.strip()
    if name not in ("TLS", *TLS_PROTOCOLS):
        raise ValueError(f"must be TLS, {' or '.join(TLS_PROTOCOLS)}; older ones are not safe")
    return "TLSv1.3" if name == "TLS" else name


def tls_versions(raw: str) -> tuple[str, ...]:
    """Kafka's ssl.enabled.protocols."""
    versions = tuple(name.strip() for name in raw.split(","))
    if not set(versions) <= set(TLS_PROTOCOLS):
        raise ValueError(f"must be of {', '.join(TLS_PROTOCOLS)}, comma-separated; older ones are not safe")
    return tuple(name for name in TLS_PROTOCOLS if name in versions)


def endpoint(raw: str) -> Secret:
    """URL of OAuth tokens; not shown, as some have secrets in them."""
    parts = url_parts(raw, "https", "http", "file")
    if "@" in parts.netloc:
        raise ValueError(
            "must have no user and password before its host: "
            "kafka.sasl.oauthbearer.client.credentials.client.id and .secret are for them"
        )
    if parts.scheme != "file" and not parts.hostname:
        raise ValueError("must be a URL with a host")
    return Secret(raw.strip())


def proxy(raw: str) -> Secret:
    """URL of a proxy to connect through; not shown, as a password may be in it."""
    parts = url_parts(raw, "socks5", "socks5h", "http")
    if not parts.hostname or parts.port is None or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(
            "must be scheme://host:port or scheme://user:password@host:port, with socks5, socks5h or http, and nothing "
            "after the port"
        )
    if "@" in parts.netloc and not (parts.username and parts.password):
        raise ValueError("must have both user and password before the @, or neither")
    return Secret(raw.strip())


def url_parts(raw: str, *schemes: str) -> SplitResult:
    """The parts of a URL; errors of urllib, which have the text in them, are not passed on."""
    url = raw.strip()
    try:
        parts = urlsplit(url)
        valid = parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("must be a URL with a valid host and port")
    if parts.scheme not in schemes:
        raise ValueError(f"must be a URL with {', '.join(schemes[:-1])} or {schemes[-1]}")
    if parts.scheme != "file" and not (url.isascii() and url.isprintable() and " " not in url):
        raise ValueError("must be a URL of ASCII characters without spaces")
    return parts
