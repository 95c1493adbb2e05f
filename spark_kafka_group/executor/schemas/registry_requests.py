"""Requests to a schema registry: Confluent's API over HTTP, and what its answers mean."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from spark_kafka_group.errors import BrokerError, OptionError, RegistryError, RegistryTimeoutError, UnknownSchemaError
from spark_kafka_group.options.schema_registry import (
    ISSUER,
    SchemaRegistry,
    as_issuers,
    is_file,
    registrys,
    shown,
    user_and_password,
)
from spark_kafka_group.options.security import Secret
from spark_kafka_group.text.foreign_text import excerpt, parsed, printable
from spark_kafka_group.wire.broker_connection import Deadline
from spark_kafka_group.wire.http_request import TooLargeError, Way, body, send

if TYPE_CHECKING:
    from spark_kafka_group.options.security.credentials import ClientCredentials, TokenFile

LARGEST = 16 << 20  # bytes of an answer; a registry keeps a schema in one record, which usually has 1 MB at most
CONTENT = "application/vnd.schemaregistry.v1+json"
HEADERS = {"Accept": f"{CONTENT}, application/vnd.schemaregistry+json, application/json", "Content-Type": CONTENT}
UNKNOWN = {40401, 40402, 40403}  # no such subject, version, schema
BUSY = {408, 425, 429}  # with those from 500 on, refusals that pass
ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)  # a server that goes away causes them too
WRONG_NAME = {62, 64}  # OpenSSL's codes of a certificate for another host, or another address
LONGEST_SHOWN = 300
BEARER = "Bearer "
LEAST_MS = 1000  # that a request has, also where a task has no time left


class NoRegistryError(RegistryError):
    """Raised when what answers is no schema registry: the URL is wrong, or a proxy's registry is away."""


class _AwayError(Exception):
    """Raised where one of several registries does not answer, with the reason."""


class RegistryRequests:
    """Asks the registries of the options in turn, beginning with the one that has answered last."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._answered = 0

    def ask(self, path: str, content: dict[str, Any] | None = None, within_s: float = inf) -> Any:
        """The answer to a GET, or to a POST where there is `content`. Raises UnknownSchemaError when the registry does
        not have what was asked for. Raises RegistryTimeoutError when no registry answers now, NoRegistryError when only
        other servers do. Raises RegistryError when it refuses: asking again does not help. Each has its share of
        `within_s`."""
        count, deadline = len(self._registry.url), Deadline(within_s)
        problems: list[str] = []
        others = 0
        for number in (*range(self._answered, count), *range(self._answered)):
            share_ms = 1000 * deadline.left_s / (count - len(problems))
            within_ms = int(min(max(share_ms, LEAST_MS), self._registry.http_read_timeout_ms))
            try:
                answer = self._asked(self._registry.url[number], path, content, within_ms)
            except (_AwayError, NoRegistryError) as error:
                problems.append(str(error))
                others += isinstance(error, NoRegistryError)
            else:
                self._answered = number
                return answer
        raise (NoRegistryError if others == count else RegistryTimeoutError)("; ".join(problems))

    def _asked(self, url: Secret, path: str, content: dict[str, Any] | None, within_ms: int) -> Any:
        asked = f"{'GET' if content is None else 'POST'} {path}"
        who = self._who(url)
        data = None if content is None else json.dumps(content).encode()
        try:
            found = self._answer(url, path, data, within_ms)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(who, url, asked, error) from None
        except OSError as error:
            raise self._unreached(who, error, within_ms) from None
        except http.client.IncompleteRead:
            raise _AwayError(f"{who}: its answer ended too early") from None
        except http.client.HTTPException as error:
            raise _no_registry(who, asked, f"with something else than HTTP ({type(error).__name__})") from None
        except TooLargeError:
            raise _no_registry(who, asked, f"with more than {LARGEST} bytes") from None
        return _json(who, asked, found)

    def _who(self, url: Secret) -> str:
        """The registry, and the proxy before it, which may be what answers or does not."""
        host, port = self._registry.proxy_host, self._registry.proxy_port
        proxy = f"{host}:{port}" if host else ""
        parts = urlsplit(url.text)
        if not host and not urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
            proxy = urllib.request.getproxies().get(parts.scheme, "").rpartition("//")[2].rpartition("@")[2]
        return f"schema registry {shown(url)}{proxy and f' through the proxy {printable(proxy)}'}"

    def _answer(self, url: Secret, path: str, data: bytes | None, within_ms: int) -> bytes:
        """The body of an answer. Where a token is refused before its end, another one is taken, once."""
        login, source = self._login(url), self._issuer()
        try:
            return send(f"{shown(url)}{path}", self._way(url, within_ms), HEADERS | login, data)
        except urllib.error.HTTPError as error:
            if error.code != 401 or source is None:
                raise
            from spark_kafka_group.wire.client.tokens import tokens_of

            error.close()
            tokens_of(source).forget(login["Authorization"].removeprefix(BEARER))
        return send(f"{shown(url)}{path}", self._way(url, within_ms), HEADERS | self._login(url), data)

    def _way(self, url: Secret, within_ms: int) -> Way:
        registry, context = self._registry, None
        if url.text.startswith("https:"):
            from spark_kafka_group.options.security.tls import client_context

            try:
                # Read anew for each request: certificates are replaced.
                context = client_context(registry.tls)
            except OptionError as error:
                raise OptionError(registrys(str(error))) from None
        proxy = registry.proxy_host and f"http://{registry.proxy_host}:{registry.proxy_port}"
        return Way(within_ms / 1000, registry.http_connect_timeout_ms / 1000, context, proxy, LARGEST)

    def _login(self, url: Secret) -> dict[str, str]:
        """Headers that show who asks."""
        registry = self._registry
        user = user_and_password(registry, url)
        if user is not None:
            return {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
        token = self._token()
        headers = {
            "Authorization": token and f"{BEARER}{token}",
            "target-sr-cluster": registry.bearer_auth_logical_cluster,
            "Confluent-Identity-Pool-Id": registry.bearer_auth_identity_pool_id,
        }
        return {name: value for name, value in headers.items() if value is not None}

    def _token(self) -> str | None:
        registry, source = self._registry, self._issuer()
        if source is None:
            return None if registry.bearer_auth_token is None else registry.bearer_auth_token.text
        from spark_kafka_group.wire.client.tokens import tokens_of

        try:
            return tokens_of(source).token()
        except BrokerError as error:
            message = as_issuers(str(error))
            raise (_AwayError(message) if type(error) is BrokerError else RegistryError(message)) from None

    def _issuer(self) -> ClientCredentials | TokenFile | None:
        """Where tokens are from that end; None where there are none."""
        registry = self._registry
        if registry.bearer_auth_issuer_endpoint_url is None:
            return None
        from spark_kafka_group.options.security import credentials

        url = registry.bearer_auth_issuer_endpoint_url.text
        if is_file(url):
            return credentials.TokenFile(unquote(urlsplit(url).path))
        identity, secret = registry.bearer_auth_client_id, registry.bearer_auth_client_secret
        assert identity is not None
        assert secret is not None
        return credentials.ClientCredentials(url, identity, secret, registry.bearer_auth_scope)

    def _refusal(self, who: str, url: Secret, asked: str, error: urllib.error.HTTPError) -> Exception:
        """What an answer means that is no success."""
        said, code = _said(error)
        status = f"HTTP {error.code}{f': {said}' if said else ''}"
        if error.code >= 500 or error.code in BUSY:
            return _AwayError(f"{who} answers {status}")
        if code in UNKNOWN:
            return UnknownSchemaError(f"{who} answers {asked} with: {said or f'error {code}'}")
        if error.code in (401, 403):
            return RegistryError(f"{who} refuses {asked} with {status}. {self._who_asks(url)}")
        if 300 <= error.code < 400:
            return RegistryError(
                f"{who} redirects {asked} with {status}, and redirects are not followed, as passwords would go "
                f"elsewhere: name the registry's own URL in schema.registry.url"
            )
        if error.code == 404 and "/schemas/guids/" in asked and "json" in error.headers.get_content_type():
            return RegistryError(f"{who} answers {asked} with {status}: it finds no schema by its GUID, only by its id")
        if code is None or code == error.code == 404:
            return _no_registry(who, asked, f"with {status}")
        return RegistryError(f"{who} refuses {asked} with {status}")

    def _who_asks(self, url: Secret) -> str:
        user = user_and_password(self._registry, url)
        if user is not None:
            return f"It was asked as user {printable(user.partition(':')[0])}: check user, password and rights"
        if self._registry.bearer_auth_token is not None or self._issuer() is not None:
            return "It was asked with a bearer token: check where that is from, and its rights"
        return (
            "It was asked without a login: give schema.registry.basic.auth.user.info, "
            f"schema.registry.bearer.auth.token or {ISSUER}"
        )

    def _unreached(self, who: str, error: OSError, within_ms: int) -> Exception:
        """Why there is no answer; errors of TLS that stay until something is changed are final."""
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(why, ssl.SSLCertVerificationError):
            advice = "schema.registry.ssl.truststore.location names a file with the certificates to trust"
            if why.verify_code in WRONG_NAME:
                name = "schema.registry.ssl.endpoint.identification.algorithm"
                advice = f"name the registry as its certificate does, or see {name}"
            return RegistryError(f"{who}: its certificate is not trusted: {why.verify_message}: {advice}")
        if isinstance(why, ssl.SSLError) and not isinstance(why, ENDED):
            reason = str(why.reason or why)
            if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
                return RegistryError(f"{who} does not speak TLS: take http in schema.registry.url, or another port")
            if "CERTIFICATE" in reason:
                return RegistryError(
                    f"{who} refuses this client's certificate, or asks for one ({reason}): see "
                    f"schema.registry.ssl.keystore.location"
                )
            return RegistryError(f"{who}: TLS failed ({reason}): check schema.registry.ssl.*")
        if isinstance(why, http.client.RemoteDisconnected):
            return _AwayError(f"{who} closes the connection without an answer: check that it is a registry's port")
        if isinstance(why, ENDED):
            return _AwayError(
                f"{who} ends TLS without an answer: it may want a certificate of this client, see "
                f"schema.registry.ssl.keystore.location"
            )
        if isinstance(why, TimeoutError):
            return _AwayError(f"{who} has not answered within {within_ms} ms")
        said = getattr(why, "strerror", None) or why
        return _AwayError(f"{who} cannot be reached: {said}: check schema.registry.url, and whether it runs")


def _no_registry(who: str, asked: str, how: str) -> NoRegistryError:
    return NoRegistryError(
        f"{who} answers {asked} {how}, as no schema registry does: check host, port and path of schema.registry.url "
        f"(such as /apis/ccompat/v7 of Apicurio)"
    )


def _json(who: str, asked: str, found: bytes) -> Any:
    try:
        return parsed(found)
    except ValueError:
        raise _no_registry(who, asked, f"with {excerpt(found[:40])}") from None


def _said(error: urllib.error.HTTPError) -> tuple[str, int | None]:
    """A refusal's message and its code, where it is a registry's."""
    try:
        found = parsed(body(error, LARGEST))
    except (OSError, http.client.HTTPException, TooLargeError, ValueError):
        return "", None
    code = found.get("error_code") if isinstance(found, dict) else None
    if not isinstance(code, int):
        return "", None
    said = str(found.get("message") or "")
    return printable(said if len(said) <= LONGEST_SHOWN else f"{said[:LONGEST_SHOWN]}..."), code
