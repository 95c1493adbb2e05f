"""Certificates and keys in files: PEM and PKCS12 are read, JKS is refused with the line that converts it.

The first bytes show the type of a file. Java's default type, JKS, means nothing: Java reads PKCS12 under that name too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext, SparkFiles

from spark_kafka_group.errors import OptionError
from spark_kafka_group.files import read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

JKS_MAGIC, JCEKS_MAGIC = b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"
DER_SEQUENCE = b"\x30"
BEGIN = b"-----BEGIN "


@dataclass(frozen=True, repr=False)
class KeyPair:
    """PEM of a private key and, after it, its certificate chain; and the key's password."""

    pem: bytes
    password: str | None


def trusted(option: str, location: str, password: str | None) -> str:
    """PEM of the certificates in a truststore file.

    Raises
    ------
    OptionError
        Naming `option`, the file and what to change.
    """
    data = read(option, location)
    if BEGIN in data:
        if password is not None:
            raise OptionError(f"kafka.ssl.truststore.password: {location} is PEM, which has none: leave it out")
        return data.decode("utf-8", "replace")
    content = _pkcs12(option, "kafka.ssl.truststore.password", location, data, password)
    certificates = [*([content.cert] if content.cert else []), *content.additional_certs]
    if not certificates:
        raise OptionError(f"{option} ({location}) has no certificates in it")
    return b"".join(c.certificate.public_bytes(_pem()) for c in certificates).decode("ascii")


def key_pair(option: str, location: str, password: str | None, key_password: str | None) -> KeyPair:
    """The private key in a keystore file, with its certificates.

    Raises
    ------
    OptionError
        Naming `option`, the file and what to change.
    """
    data = read(option, location)
    if BEGIN in data:
        if password is not None:
            raise OptionError(
                f"kafka.ssl.keystore.password: {location} is PEM; the password of its key is kafka.ssl.key.password"
            )
        return KeyPair(data, key_password)
    if key_password not in (None, password):
        raise OptionError(
            "kafka.ssl.key.password: in PKCS12 the key has the store's password; leave it out, or make them the same"
        )
    content = _pkcs12(option, "kafka.ssl.keystore.password", location, data, password)
    if content.key is None or content.cert is None:
        raise OptionError(f"{option} ({location}) has no private key with a certificate in it")
    from cryptography.hazmat.primitives.serialization import NoEncryption, PrivateFormat

    key = content.key.private_bytes(_pem(), PrivateFormat.PKCS8, NoEncryption())
    chain = [content.cert.certificate, *(c.certificate for c in content.additional_certs)]
    return KeyPair(key + b"".join(c.public_bytes(_pem()) for c in chain), None)


def read(option: str, location: str) -> bytes:
    """Bytes of a file at this path or, where there is none, of the file of this name among those of ``--files``.

    Raises
    ------
    OptionError
    """
    try:
        return read_file(_found(Path(location)))
    except OSError as error:
        raise OptionError(
            f"{option} ({location}) cannot be read: {error.strerror}. It must be on the driver and on each executor, "
            f"under the same path, or sent along with spark-submit --files"
        ) from None


def _found(path: Path) -> Path:
    if path.exists():
        return path
    root = SparkFiles._root_directory
    if root is None and SparkContext._active_spark_context is not None:
        root = SparkFiles.getRootDirectory()
    # For a streaming query Spark names a directory below the one that has the files.
    candidates = [directory / path.name for directory in (Path(root), Path(root).parent)] if root else []
    return next((candidate for candidate in candidates if candidate.exists()), path)


def _pkcs12(
    option: str, password_option: str, location: str, data: bytes, password: str | None
) -> PKCS12KeyAndCertificates:
    _check_format(option, location, data)
    if password is None:
        raise OptionError(f"{option} ({location}) is PKCS12, which needs {password_option}")
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise OptionError(
            f"{option} ({location}) is PKCS12, for which the package cryptography has to be installed on the driver "
            f"and executors: pip install cryptography. Or make PEM of it, which needs no package: "
            f"openssl pkcs12 -in {quote(location)} -out {quote(str(Path(location).with_suffix('.pem')))}"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, password.encode())
    except ValueError:
        raise OptionError(f"{option} ({location}): {password_option} is wrong, or the file is damaged") from None


def _check_format(option: str, location: str, data: bytes) -> None:
    if data[:4] in (JKS_MAGIC, JCEKS_MAGIC):
        kind = "JKS" if data.startswith(JKS_MAGIC) else "JCEKS"
        target = Path(location).with_suffix(".p12")
        raise OptionError(
            f"{option} ({location}) is a {kind} store, which only Java reads. Make PKCS12 of it and name that: "
            f"keytool -importkeystore -srckeystore {quote(location)} -srcstoretype {kind} "
            f"-destkeystore {quote(str(target))} -deststoretype PKCS12"
        )
    if not data.startswith(DER_SEQUENCE):
        raise OptionError(f"{option} ({location}) is neither PEM nor PKCS12: check that it is the right file")


def _pem() -> Any:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.PEM
