"""From Kafka's ``ssl.*`` settings, with Java's names of cipher suites, to Python's TLS."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.security import stores
from spark_kafka_group.options.security.settings import Security
from spark_kafka_group.options.security.stores import KeyPair
from spark_kafka_group.text.foreign_text import Secret, shortened

TLS13 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
NO_SUITE = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"  # Java lists it among the suites; OpenSSL always sends this signal
SUITE = re.compile(
    r"TLS_(RSA|DHE_RSA|ECDHE_RSA|ECDHE_ECDSA)_WITH_(AES_(128|256)_(CBC|GCM)_SHA\d*|CHACHA20_POLY1305_SHA256)"
)


def openssl_name(suite: str) -> str | None:
    """``TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA`` is ``ECDHE-RSA-AES128-SHA``; None for a suite without a name there."""
    named = SUITE.fullmatch(suite)
    if named is None:
        return None
    exchange = "" if named[1] == "RSA" else f"{named[1]}_"
    cipher = named[2].replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    return f"{exchange}{cipher}".replace("_", "-")


def use(context: ssl.SSLContext, suites: tuple[str, ...]) -> str | None:
    """Let `context` offer these suites only; returns why they are refused, if they are. Without a suite of TLS 1.3
    among them that version is not spoken, as in Java, and the other way round."""
    wanted = [suite for suite in suites if suite != NO_SUITE]
    newest = {suite for suite in wanted if suite in TLS13}
    older = {suite: openssl_name(suite) for suite in wanted if suite not in newest}
    if newest and newest != set(TLS13):
        return f"Python cannot choose among TLS 1.3's suites: name all of {', '.join(TLS13)}, or none of them"
    if not newest:
        context.maximum_version = min(context.maximum_version, ssl.TLSVersion.TLSv1_2)
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return None
    return _use_older(context, older)


def _use_older(context: ssl.SSLContext, older: Mapping[str, str | None]) -> str | None:
    """As :func:`use`, of suites before TLS 1.3 with their names in OpenSSL."""
    for suite, name in older.items():
        try:
            if name is None:
                return f"{shortened(suite)} is none of Java's suites that can be used here"
            context.set_ciphers(name)
        except ssl.SSLError:
            return f"{suite} is not a suite that this Python's OpenSSL offers"
    context.set_ciphers(":".join(str(name) for name in older.values()))
    return None


VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def client_context(security: Security) -> ssl.SSLContext:
    """The TLS context of connections. Raises OptionError for a bad file or password, or key and certificate apart."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As in Java, each certificate of the truststore is trusted, also one that another has signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = security.ssl_endpoint_identification_algorithm == "https"
    _choose_versions(context, security)
    _trust(context, security)
    pair = _key_pair(security)
    if pair is not None:
        _present(context, pair, "location" if security.ssl_keystore_location else "key")
    if security.ssl_cipher_suites:
        problem = use(context, security.ssl_cipher_suites)
        if problem is None and context.minimum_version > context.maximum_version:
            problem = "there are none for the versions in kafka.ssl.enabled.protocols and kafka.ssl.protocol"
        if problem is not None:
            raise OptionError(f"kafka.ssl.cipher.suites: {problem}")
    return context


def _choose_versions(context: ssl.SSLContext, security: Security) -> None:
    # As in Kafka, ssl.protocol is the newest version even where ssl.enabled.protocols has newer ones.
    newest = VERSIONS.get(security.ssl_protocol, ssl.TLSVersion.TLSv1_3)
    versions = [VERSIONS[name] for name in security.ssl_enabled_protocols if VERSIONS[name] <= newest]
    if not versions:
        raise OptionError(
            f"kafka.ssl.protocol ({security.ssl_protocol}) is older than all of kafka.ssl.enabled.protocols "
            f"({','.join(security.ssl_enabled_protocols)})"
        )
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _trust(context: ssl.SSLContext, security: Security) -> None:
    certificates, option = security.ssl_truststore_certificates, "kafka.ssl.truststore.certificates"
    if security.ssl_truststore_location is not None:
        option = "kafka.ssl.truststore.location"
        certificates = stores.trusted(option, security.ssl_truststore_location, _text(security.ssl_truststore_password))
        option += f" ({security.ssl_truststore_location})"
    if certificates is None:
        context.load_default_certs()
        return
    try:
        # Text around the certificates, in any language, is a comment.
        context.load_verify_locations(cadata=certificates.encode("ascii", "replace").decode())
    except ssl.SSLError:
        raise OptionError(
            f"{option} has no certificates in PEM (-----BEGIN CERTIFICATE-----) that can be read"
        ) from None


def _key_pair(security: Security) -> KeyPair | None:
    password = _text(security.ssl_key_password)
    if security.ssl_keystore_location is not None:
        return stores.key_pair(
            "kafka.ssl.keystore.location",
            security.ssl_keystore_location,
            _text(security.ssl_keystore_password),
            password,
        )
    if security.ssl_keystore_key is None:
        return None
    pem = f"{security.ssl_keystore_key.text}\n{security.ssl_keystore_certificate_chain or ''}\n"
    return KeyPair(pem.encode(), password)


def _present(context: ssl.SSLContext, pair: KeyPair, given_as: str) -> None:
    option = f"kafka.ssl.keystore.{given_as}"
    if b"PRIVATE KEY-----" not in pair.pem or b"-----BEGIN CERTIFICATE-----" not in pair.pem:
        raise OptionError(
            f"{option}: a private key (-----BEGIN PRIVATE KEY-----) and the chain of its certificate are needed"
        )
    if b"ENCRYPTED" in pair.pem and pair.password is None:
        raise OptionError(f"{option}: the key is encrypted, which needs kafka.ssl.key.password")
    try:
        with _as_file(pair.pem) as path:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password=pair.password or "")
    except ValueError:
        raise OptionError(f"{option}: kafka.ssl.key.password is too long: OpenSSL takes 1024 bytes") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise OptionError(f"{option}: the private key is not that of the first certificate of the chain") from None
        problem = (
            "the key cannot be read" if pair.password is None else "kafka.ssl.key.password is wrong, or it is damaged"
        )
        raise OptionError(f"{option}: {problem}") from None


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path for data that Python's ssl takes from files only; in memory where the system has that."""
    if Path("/proc/self/fd").is_dir() and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key")
        try:
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # for the user's eyes only
            file.write(data)
            file.flush()
            yield file.name


def _text(secret: Secret | None) -> str | None:
    return None if secret is None else secret.text
