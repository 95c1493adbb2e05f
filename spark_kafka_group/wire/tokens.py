"""Tokens for OAUTHBEARER, in the shape that kafka-python asks for them."""

from __future__ import annotations

import base64
import functools
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from spark_kafka_group import plugins
from spark_kafka_group.errors import AuthenticationError, BrokerError
from spark_kafka_group.security.credentials import ClientCredentials, OwnTokens, TokenFile, UnsecuredToken

ENDPOINT_TIMEOUT_S = 10.0
"""A token is also asked for by the thread that sends heartbeats, which must not be away for long."""
REFRESH_AT = 0.8
"""Part of a token's life after which another one is asked for, as in Kafka's Java client."""
HANDLER = "kafka.sasl.login.callback.handler.class"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves a redirect what it is, an answer without a token: following it would send credentials on."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True)
class Token:
    """A token; `lifetime_s` counts from when it was got, None where nobody says."""

    text: str
    lifetime_s: float | None


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """A source of tokens, each used for most of its life; for several threads.

    Parameters
    ----------
    get
        Makes a token.
    extensions
        SASL extensions to send with it.
    """

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
        self._token = ""
        self._refresh_at = self._over_at = -1.0

    def token(self) -> str:
        """A token that is valid now.

        Raises
        ------
        AuthenticationError, BrokerError
            When there is none; the latter when that may pass.
        """
        with self._lock:
            if self._clock() >= self._refresh_at:
                try:
                    self._renew()
                except BrokerError:
                    if self._clock() >= self._over_at:
                        raise  # else the one we have goes on for a while
            return self._token

    def _renew(self) -> None:
        now = self._clock()
        token = self._get()
        lifetime_s = token.lifetime_s or 0.0
        self._token, self._refresh_at, self._over_at = token.text, now + REFRESH_AT * lifetime_s, now + lifetime_s

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
    made = plugins.make(HANDLER, source.name, ["token"])

    def get() -> Token:
        try:
            token = made.token()
        except Exception as error:  # noqa: BLE001 - whatever the user's class raises
            # Its text is not shown: whoever makes tokens may well have them, or a password, in it.
            raise AuthenticationError(f"{source.name}.token() raised {type(error).__name__}") from None
        if not isinstance(token, str) or not token:
            raise AuthenticationError(f"{source.name}.token() must return a str that is not empty")
        return Token(token, None)

    return Tokens(get, getattr(made, "extensions", dict))


def _from_file(source: TokenFile) -> Token:
    try:
        text = Path(source.path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise AuthenticationError(
            f"the token in kafka.sasl.oauthbearer.token.endpoint.url ({source.path}) cannot be read: {error.strerror}. "
            f"It has to be on the driver and on each executor"
        ) from None
    return Token(text, None)


def _asked_for(source: ClientCredentials) -> Token:
    """A token of the client credentials grant (RFC 6749, 4.4)."""
    where = "kafka.sasl.oauthbearer.token.endpoint.url"
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    identity = base64.b64encode(f"{source.client_id}:{source.client_secret.text}".encode()).decode()
    request = urllib.request.Request(
        source.url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {identity}", "Accept": "application/json"},
    )
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=ENDPOINT_TIMEOUT_S) as response:
            answer = json.load(response)
        token, lifetime_s = str(answer["access_token"]), answer.get("expires_in")
        return Token(token, None if lifetime_s is None else float(lifetime_s))
    except urllib.error.HTTPError as error:
        if 300 <= error.code < 400:
            raise AuthenticationError(
                f"{where}: it redirects (HTTP {error.code}), which is not followed, as that would send "
                f"the client's secret on: give the URL that answers"
            ) from None
        said = _error_of(error)
        if error.code >= 500:
            raise BrokerError(f"{where}: no token: {said}") from None
        raise AuthenticationError(f"{where}: no token for client {source.client_id}: {said}") from None
    except OSError as error:
        raise BrokerError(f"{where}: no token: {getattr(error, 'reason', error)}") from None
    except http.client.InvalidURL:
        raise AuthenticationError(f"{where}: it is no URL that can be asked") from None
    except http.client.HTTPException as error:
        raise BrokerError(f"{where}: no token: what it answers is not HTTP ({type(error).__name__})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise AuthenticationError(f"{where}: what it answers is no JSON with access_token and expires_in") from None


def _error_of(error: urllib.error.HTTPError) -> str:
    """The endpoint's own word for what is wrong, such as invalid_client; the rest of its answer is not shown."""
    told = f"HTTP {error.code}"
    try:
        answer: Any = json.load(error)
        return f"{told} {answer['error']}" if isinstance(answer["error"], str) else told
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return told


def _unsecured(source: UnsecuredToken) -> Token:
    now = time.time()
    claims = dict(source.claims) | {"iat": now, "exp": now + source.lifetime_s}
    parts = (_base64url({"alg": "none"}), _base64url(claims), "")
    return Token(".".join(parts), source.lifetime_s)


def _base64url(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
