"""Tokens for OAUTHBEARER, in the shape that kafka-python asks for them."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import math
import os
import re
import stat
import threading
import time
import urllib.error
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.options.security.credentials import ClientCredentials, OwnTokens, TokenFile, UnsecuredToken
from spark_kafka_group.options.security.option_values import OF_A_TOKEN, TOKEN
from spark_kafka_group.values import user_classes
from spark_kafka_group.wire.http_request import LARGEST, TooLargeError, Way, body, send

ENDPOINT_TIMEOUT_S = 10.0
"""A token is also asked for by the thread that sends heartbeats, which must not be away for long."""
REFRESH_AT = 0.8  # part of a token's life after which another one is asked for, as in Kafka's Java client
LONGEST_S = 100 * 365 * 86_400
"""A century. A longer lifetime of a token is a mistake, for example a date in place of a duration."""
HANDLER = "kafka.sasl.login.callback.handler.class"
ENDPOINT = "kafka.sasl.oauthbearer.token.endpoint.url"
NOT_A_TOKEN = f"that is no token: {OF_A_TOKEN}"
WORD = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@dataclass(frozen=True)
class Token:
    """A token; `lifetime_s` counts from its arrival, None where it is unknown."""

    text: str
    lifetime_s: float | None


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """A source of tokens, each used for most of its life; for several threads. `get`: makes a token. `extensions`: SASL
    extensions to send with it."""

    def __init__(
        self,
        get: Callable[[], Token],
        extensions: Callable[[], dict[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get = get
        self._extensions = extensions
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: tuple[float, BrokerError] | None = None
        self._token = ""
        self._refresh_at = self._over_at = -1.0

    def token(self) -> str:
        """A token that is valid now. Raises AuthenticationError, or BrokerError when the lack may pass."""
        asked_at = self._clock()
        with self._lock:
            if self._clock() >= self._refresh_at:
                try:
                    self._renew(asked_at)
                except BrokerError:
                    if self._clock() >= self._over_at:
                        raise  # else the one we have goes on for a while
            return self._token

    def _renew(self, asked_at: float) -> None:
        if self._failed is not None and asked_at < self._failed[0]:
            # Another thread has asked while this one waited. Without this the last thread would wait for all others.
            raise type(self._failed[1])(str(self._failed[1]))
        now = self._clock()
        try:
            token = self._get()
        except BrokerError as error:
            self._failed = self._clock(), error
            raise
        lifetime_s = token.lifetime_s or 0.0
        self._token, self._refresh_at, self._over_at = token.text, now + REFRESH_AT * lifetime_s, now + lifetime_s

    def forget(self, token: str) -> None:
        """Get another token the next time, as this one was refused."""
        with self._lock:
            if token == self._token:
                self._refresh_at = self._over_at = -1.0

    def extensions(self) -> dict[str, str]:
        return self._extensions()


@functools.cache
def tokens_of(source: ClientCredentials | TokenFile | UnsecuredToken | OwnTokens) -> Tokens:
    """The source of tokens that these credentials name, one for all connections of this process."""
    if isinstance(source, OwnTokens):
        return _own(source)
    get: Callable[[], Token]
    if isinstance(source, ClientCredentials):
        get = functools.partial(_asked_for, source)
    elif isinstance(source, TokenFile):
        get = functools.partial(_from_file, source)
    else:
        get = functools.partial(_unsecured, source)
    return Tokens(get, lambda: dict(source.extensions))


def _own(source: OwnTokens) -> Tokens:
    made = user_classes.make(HANDLER, source.name, ["token"])

    def get() -> Token:
        token = _called(f"{source.name}.token()", made.token)
        if not isinstance(token, str) or not token:
            raise AuthenticationError(f"{source.name}.token() must return a str that is not empty")
        return Token(checked(token, f"{source.name}.token()"), None)

    def extensions() -> dict[str, str]:
        found: dict[str, str] = _called(f"{source.name}.extensions()", getattr(made, "extensions", dict))
        return found

    return Tokens(get, extensions)


def _called(name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        # Its text is not shown: it may have a token or a password in it.
        raise AuthenticationError(f"{name} raised {type(error).__name__}") from None


def checked(token: str, origin: str) -> str:
    """A token that can be sent. Raises AuthenticationError without the token, naming where it is from."""
    if TOKEN.fullmatch(token):
        return token
    raise AuthenticationError(f"{origin}: {'the token is empty' if not token else NOT_A_TOKEN}")


def _from_file(source: TokenFile) -> Token:
    origin = f"the token in {ENDPOINT} ({source.path})"
    try:
        # A pipe without a writer is not waited for.
        with open(os.open(source.path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AuthenticationError(f"{origin} cannot be read: it is not a file")
            raw = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "this is not a valid path")
        raise AuthenticationError(
            f"{origin} cannot be read: {why}. It must be on the driver and on each executor"
        ) from None
    if len(raw) > LARGEST:
        raise AuthenticationError(f"{origin} has more than {LARGEST} bytes: check that it is the right file")
    return Token(checked(raw.strip().decode("ascii", "replace"), origin), None)


def _asked_for(source: ClientCredentials) -> Token:
    """A token of the client credentials grant (RFC 6749, 4.4)."""
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    identity = base64.b64encode(f"{source.client_id}:{source.client_secret.text}".encode()).decode()
    headers = {"Authorization": f"Basic {identity}", "Accept": "application/json"}
    try:
        answer = send(source.url, Way(ENDPOINT_TIMEOUT_S), headers, urllib.parse.urlencode(form).encode())
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(source, error) from None
    except OSError as error:
        why = getattr(error, "reason", error)
        late = f"it has not answered within {ENDPOINT_TIMEOUT_S:g} s" if isinstance(why, TimeoutError) else why
        raise BrokerError(f"{ENDPOINT}: no token: {late}") from None
    except http.client.InvalidURL:
        raise AuthenticationError(f"{ENDPOINT}: it is not a URL that can be requested") from None
    except http.client.HTTPException as error:
        raise BrokerError(f"{ENDPOINT}: no token: its answer is not HTTP ({type(error).__name__})") from None
    except TooLargeError:
        raise AuthenticationError(
            f"{ENDPOINT}: its answer has more than {LARGEST} bytes: check that the URL is right"
        ) from None
    return _granted(answer)


def _granted(answer: bytes) -> Token:
    try:
        fields: Any = json.loads(answer)
        token, lifetime_s = fields["access_token"], fields.get("expires_in")
        lifetime_s = None if lifetime_s is None else _seconds(lifetime_s)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise AuthenticationError(f"{ENDPOINT}: its answer is not JSON with access_token and expires_in") from None
    if not isinstance(token, str):
        raise AuthenticationError(f"{ENDPOINT}: access_token in its answer is not text")
    if lifetime_s is not None and not 0 <= lifetime_s <= LONGEST_S:
        raise AuthenticationError(
            f"{ENDPOINT}: expires_in in its answer is not a number of seconds from 0 to {LONGEST_S}"
        )
    return Token(checked(token, ENDPOINT), lifetime_s)


def _seconds(given: Any) -> float:
    """Some endpoints give a number as text. One that is too large for a float is as wrong as one just below that."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise TypeError
    try:
        return float(given)
    except OverflowError:
        return math.inf


def _refusal(source: ClientCredentials, error: urllib.error.HTTPError) -> BrokerError:
    if 300 <= error.code < 400:
        return AuthenticationError(
            f"{ENDPOINT}: it redirects (HTTP {error.code}), and redirects are not followed, as the client's secret "
            f"would go to another URL: give the URL that answers"
        )
    said = _error_of(source, error)
    if error.code >= 500:
        return BrokerError(f"{ENDPOINT}: no token: {said}")
    return AuthenticationError(f"{ENDPOINT}: no token for client {source.client_id}: {said}")


def _error_of(source: ClientCredentials, error: urllib.error.HTTPError) -> str:
    """The endpoint's error code, for example invalid_client; the rest of its answer is not shown."""
    message = f"HTTP {error.code}"
    try:
        answer: Any = json.loads(body(error))
        word = str(answer["error"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError, http.client.HTTPException, TooLargeError):
        return message
    return f"{message} {word}" if WORD.fullmatch(word) and source.client_secret.text not in word else message


def _unsecured(source: UnsecuredToken) -> Token:
    now = time.time()
    claims = dict(source.claims) | {"iat": now, "exp": now + source.lifetime_s}
    parts = (_base64url({"alg": "none"}), _base64url(claims), "")
    return Token(".".join(parts), source.lifetime_s)


def _base64url(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
