"""Java's names of cipher suites, which are IANA's, as OpenSSL's."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping

from spark_kafka_group.text.json_text import shortened

TLS13 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
NO_SUITE = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Java lists it among the suites; OpenSSL always sends this signal."""
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
    """Let `context` offer these suites only; returns why they are refused, if they are.

    Without a suite of TLS 1.3 among them that version is not spoken, as in Java, and the other way round.
    """
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
