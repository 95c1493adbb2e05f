"""Stores that only Java reads, JKS and JCEKS: its keytool makes PKCS12 of them.

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
from pathlib import Path
from typing import NamedTuple

KINDS = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
"""Kinds of stores by their first bytes."""
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
    """A store as PKCS12, under a password of its own.

    Parameters
    ----------
    key_password
        Of its one private key, if that is not the store's.

    Raises
    ------
    JksError
    """
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
    """Its output."""
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
