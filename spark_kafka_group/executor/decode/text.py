"""Keys of headers as text, for both twins."""

from __future__ import annotations

import codecs

LARGE = 1 << 16
"""Bytes of a key up to which it is converted at once; bytes that are not UTF-8 get three times as long."""


def utf8(key: bytes, limit: int) -> bytes:
    """A header's key with U+FFFD in place of bytes that are not UTF-8; once it is beyond `limit` bytes, only its
    beginning."""
    if len(key) <= LARGE:
        return key.decode("utf-8", "replace").encode()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    made = bytearray()
    for at in range(0, len(key), LARGE):
        made += decoder.decode(key[at : at + LARGE], at + LARGE >= len(key)).encode()
        if len(made) > limit:
            break
    return bytes(made)
