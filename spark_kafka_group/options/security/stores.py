"""Certificates and keys in files: PEM, PKCS12, and JKS and JCEKS, of which Java's keytool makes PKCS12.

The first bytes show the type of a file. Java's default type, JKS, means nothing: Java reads PKCS12 under that name too.
Passwords reach keytool by its environment, which other users cannot see. The files are in a folder that only this user
can read, and go at once.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import SparkContext, SparkFiles

from spark_kafka_group.errors import OptionError
from spark_kafka_group.values.files import read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates


DER_SEQUENCE = b"\x30"
BEGIN = b"-----BEGIN "


@dataclass(frozen=True, repr=False)
class KeyPair:
    """PEM of a private key and, after it, its certificate chain; and the key's password."""

    pem: bytes
    password: str | None


def trusted(option: str, location: str, password: str | None) -> str:
    """PEM of the certificates in a truststore file. Raises OptionError naming `option`, the file and what to change."""
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
    """The private key in a keystore, with certificates. Raises OptionError naming `option`, file and what to change."""
    data = read(option, location)
    if BEGIN in data:
        if password is not None:
            raise OptionError(
                f"kafka.ssl.keystore.password: {location} is PEM; the password of its key is kafka.ssl.key.password"
            )
        return KeyPair(data, key_password)
    if key_password not in (None, password) and kind_of(data) is None:
        raise OptionError(
            "kafka.ssl.key.password: in PKCS12 the key has the store's password; leave it out, or make them the same"
        )
    content = _pkcs12(option, "kafka.ssl.keystore.password", location, data, password, key_password)
    if content.key is None or content.cert is None:
        raise OptionError(f"{option} ({location}) has no private key with a certificate in it")
    from cryptography.hazmat.primitives.serialization import NoEncryption, PrivateFormat

    key = content.key.private_bytes(_pem(), PrivateFormat.PKCS8, NoEncryption())
    chain = [content.cert.certificate, *(c.certificate for c in content.additional_certs)]
    return KeyPair(key + b"".join(c.public_bytes(_pem()) for c in chain), None)


def read(option: str, location: str) -> bytes:
    """Bytes of the file at this path or, failing that, of this name among those of ``--files``. Raises OptionError."""
    try:
        return read_file(_found(Path(location)))
    except OSError as error:
        raise OptionError(
            f"{option} ({location}) cannot be read: {error.strerror}. It must be on the driver and on each executor, "
            f"under the same path, or sent along with spark-submit --files"
        ) from None


def file_of(option: str, location: str) -> Path:
    """The file at this path, or the one of this name among those of ``--files``; it can be read. Raises OptionError."""
    read(option, location)
    return _found(Path(location))


def _found(path: Path) -> Path:
    if path.exists():
        return path
    return sent_along(path.name) or path


def sent_along(name: str) -> Path | None:
    """The file of this name among those of ``--files``, if there is one."""
    root = SparkFiles._root_directory
    if root is None and SparkContext._active_spark_context is not None:
        root = SparkFiles.getRootDirectory()
    # For a streaming query Spark names a directory below the one that has the files.
    candidates = [directory / name for directory in (Path(root), Path(root).parent)] if root else []
    return next((candidate for candidate in candidates if candidate.exists()), None)


def _pkcs12(
    option: str,
    password_option: str,
    location: str,
    data: bytes,
    password: str | None,
    key_password: str | None = None,
) -> PKCS12KeyAndCertificates:
    """What is in a store that is PKCS12 or JKS."""
    kind = kind_of(data) or "PKCS12"
    if kind == "PKCS12" and not data.startswith(DER_SEQUENCE):
        raise OptionError(f"{option} ({location}) is none of PEM, PKCS12 and JKS: check that it is the right file")
    if password is None:
        raise OptionError(f"{option} ({location}) is {kind}, which needs {password_option}")
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise OptionError(
            f"{option} ({location}) is {kind}, for which the package cryptography has to be installed on the driver "
            f"and executors: pip install cryptography. Or make PEM of it, which needs no package: "
            f"{_line_that_makes_pem(kind, location)}"
        ) from None
    try:
        if kind != "PKCS12":
            data, password = as_pkcs12(data, password, key_password)
        return pkcs12.load_pkcs12(data, password.encode())
    except WrongPasswordError:
        also = " (or kafka.ssl.key.password)" if key_password is not None else ""
        raise OptionError(f"{option} ({location}): {password_option}{also} is wrong, or the file is damaged") from None
    except JksError as error:
        raise OptionError(
            f"{option} ({location}) is a {kind} store: {error}. Or make PKCS12 of it and name that: "
            f"{_line_that_makes_pkcs12(kind, location)}"
        ) from None
    except ValueError:
        raise OptionError(f"{option} ({location}): {password_option} is wrong, or the file is damaged") from None


def _line_that_makes_pkcs12(kind: str, location: str) -> str:
    target = Path(location).with_suffix(".p12")
    return (
        f"keytool -importkeystore -srckeystore {quote(location)} -srcstoretype {kind} "
        f"-destkeystore {quote(str(target))} -deststoretype PKCS12"
    )


def _line_that_makes_pem(kind: str, location: str) -> str:
    path = Path(location)
    source = path if kind == "PKCS12" else path.with_suffix(".p12")
    first = "" if kind == "PKCS12" else f"{_line_that_makes_pkcs12(kind, location)} && "
    return f"{first}openssl pkcs12 -in {quote(str(source))} -out {quote(str(path.with_suffix('.pem')))}"


def _pem() -> Any:
    from cryptography.hazmat.primitives.serialization import Encoding

    return Encoding.PEM


KINDS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}  # kinds of stores by their first bytes
READ_WITHIN_S = 60.0
STORE, KEY, MADE = "GROUPKAFKA_STORE", "GROUPKAFKA_KEY", "GROUPKAFKA_MADE"  # variables with passwords
WRONG = ("password was incorrect", "Cannot recover key", "tampered with")


class JksError(Exception):
    """Why a store cannot be read."""


class WrongPasswordError(JksError):
    """The password of a store or its key is wrong."""


class Pkcs12(NamedTuple):
    """A store as PKCS12."""

    data: bytes
    password: str


def kind_of(data: bytes) -> str | None:
    """JKS, JCEKS, or None for another kind of file."""
    return KINDS.get(data[:4])


@functools.lru_cache(maxsize=8)  # Java takes a second to start
def as_pkcs12(data: bytes, password: str, key_password: str | None) -> Pkcs12:
    """A store as PKCS12, under a password of its own. `key_password`: of its one private key, if that is not the
    store's. Raises JksError."""
    made = Pkcs12(b"", secrets.token_hex(16))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "store", Path(folder) / "store.p12"
        source.write_bytes(data)
        kind = str(kind_of(data))
        passwords = {STORE: password, MADE: made.password}
        one_key = []
        if key_password not in (None, password):
            passwords[KEY] = str(key_password)
            one_key = ["-srcalias", _alias_of_key(source, kind, passwords)]
            one_key += ["-srckeypass:env", KEY, "-destkeypass:env", MADE]
        read = ["-srckeystore", str(source), "-srcstoretype", kind, "-srcstorepass:env", STORE]
        written = ["-destkeystore", str(target), "-deststoretype", "PKCS12", "-deststorepass:env", MADE]
        _keytool(["-importkeystore", "-noprompt", *read, *written, *one_key], passwords)
        return made._replace(data=target.read_bytes())


def _alias_of_key(store: Path, kind: str, passwords: dict[str, str]) -> str:
    listed = _keytool(["-list", "-keystore", str(store), "-storetype", kind, "-storepass:env", STORE], passwords)
    aliases = [line.split(",", 1)[0] for line in listed.splitlines() if "PrivateKeyEntry" in line]
    if len(aliases) != 1:
        raise JksError(f"it has {len(aliases)} private keys, and one is needed with kafka.ssl.key.password")
    return aliases[0]


def _keytool(arguments: list[str], passwords: dict[str, str]) -> str:
    home = os.environ.get("JAVA_HOME")
    keytool = shutil.which("keytool", path=f"{home}/bin") if home else None
    keytool = keytool or shutil.which("keytool")
    if keytool is None:
        raise JksError("Java's keytool reads it, which is neither in JAVA_HOME nor in PATH here")
    language = ["-J-Duser.language=en"]
    try:
        done = subprocess.run(
            [keytool, *language, *arguments], env=os.environ | passwords, stdin=subprocess.DEVNULL, text=True,
            capture_output=True, timeout=READ_WITHIN_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise JksError(f"Java's keytool has not read it within {READ_WITHIN_S:.0f} s") from None
    if any(words in done.stdout + done.stderr for words in WRONG):
        raise WrongPasswordError
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("keytool error")]
        raise JksError("".join(said[:1]) or f"Java's keytool ended with {done.returncode}")
    return done.stdout
