"""How a schema registry is reached: Confluent's names, as Java's serializers have them after ``schema.registry.``."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import unquote, urlsplit

from spark_kafka_group.options.option import Section, choice, integer, names, option, text
from spark_kafka_group.options.security import Secret, Security
from spark_kafka_group.options.security import option_values as security

PREFIX = "schema.registry."
KAFKAS = {field.name: field for field in fields(Security) if field.name.startswith("ssl_")}
"""Kafka's options of TLS."""


def registrys(message: str) -> str:
    """A text about Kafka's options of TLS as that of the registry's, which have the same names after the prefix."""
    return re.sub(r"\bkafka\.ssl\.", f"{PREFIX}ssl.", message)


def _as_kafkas(attribute: str) -> Any:
    """The option of TLS that brokers have too."""
    kafkas = KAFKAS[attribute]
    metadata = kafkas.metadata

    def parse(raw: str) -> Any:
        try:
            return metadata["parse"](raw)
        except ValueError as error:
            raise ValueError(registrys(str(error))) from None

    return option(
        registrys(metadata["name"]), parse, f"As `{metadata['name']}`, for the registry.",
        default=kafkas.default, shown=metadata["shown"], secret=metadata["secret"],
    )  # fmt: skip


def urls(raw: str) -> tuple[Secret, ...]:
    """URLs, comma-separated, without a slash at their end; not shown, as a password may be in one."""
    found = []
    for url in names(raw):
        parts = security.url_parts(url, "http", "https")
        if not parts.hostname or parts.query or parts.fragment:
            raise ValueError(
                "must be URLs such as http://localhost:8081, comma-separated, with nothing after host, port and path"
            )
        if "@" in parts.netloc and not (parts.username and parts.password):
            raise ValueError("must have both user and password before an @, or neither")
        found.append(Secret(url.rstrip("/")))
    return tuple(found)


def host(raw: str) -> str:
    """A host's name or address. A URL, which may have a password, is not shown."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", raw.strip()):
        raise ValueError("must be a host's name or address alone, without scheme, user and port")
    return raw.strip()


def in_header(raw: str) -> str:
    """Text that can be sent in a header."""
    if not (raw.isascii() and raw.strip().isprintable()):
        raise ValueError("must be ASCII characters without line ends")
    return text(raw)


@dataclass(frozen=True, repr=False)
class SchemaRegistry(Section):
    """A schema registry, and how to log in to it; an attribute is named as the setting is, with underscores."""

    url: tuple[Secret, ...] = option(
        "schema.registry.url", urls,
        "The schema registry: `http://host:port` or `https://host:port`, with a path where its API has a path, as "
        "`/apis/ccompat/v7` of Apicurio. Of several, comma-separated, the next is asked where one does not answer.",
        default=(), shown="none", secret=True,
    )  # fmt: skip
    basic_auth_credentials_source: str | None = option(
        "schema.registry.basic.auth.credentials.source", choice("USER_INFO", "URL"),
        "Where user and password are: in `schema.registry.basic.auth.user.info` (`USER_INFO`), or in the URL before "
        "the host. Not needed.",
        shown="the one that has them",
    )  # fmt: skip
    basic_auth_user_info: Secret | None = option(
        "schema.registry.basic.auth.user.info", security.secret, "`user:password` of HTTP's basic authentication.",
        shown="none", secret=True,
    )  # fmt: skip
    bearer_auth_credentials_source: str | None = option(
        "schema.registry.bearer.auth.credentials.source", choice("STATIC_TOKEN", "OAUTHBEARER"),
        "Where the bearer token is from: `schema.registry.bearer.auth.token` (`STATIC_TOKEN`), or a token endpoint "
        "(`OAUTHBEARER`). Not needed.",
        shown="the one that is given",
    )  # fmt: skip
    bearer_auth_token: Secret | None = option(
        "schema.registry.bearer.auth.token", security.token,
        "A bearer token, which has to outlive the query.",
        shown="none", secret=True,
    )  # fmt: skip
    bearer_auth_issuer_endpoint_url: Secret | None = option(
        "schema.registry.bearer.auth.issuer.endpoint.url", security.endpoint,
        "`OAUTHBEARER`: the URL to ask for tokens, or `file:` and the path of a token, which is read for each request. "
        "As `kafka.sasl.oauthbearer.token.endpoint.url`.",
        shown="none", secret=True,
    )  # fmt: skip
    bearer_auth_client_id: str | None = option(
        "schema.registry.bearer.auth.client.id", text, "`OAUTHBEARER`: the client's id.", shown="none"
    )
    bearer_auth_client_secret: Secret | None = option(
        "schema.registry.bearer.auth.client.secret", security.secret, "`OAUTHBEARER`: the client's secret.",
        shown="none", secret=True,
    )  # fmt: skip
    bearer_auth_scope: str | None = option(
        "schema.registry.bearer.auth.scope", text, "`OAUTHBEARER`: the scope to ask for.", shown="none"
    )
    bearer_auth_logical_cluster: str | None = option(
        "schema.registry.bearer.auth.logical.cluster", in_header,
        "The registry's id in Confluent Cloud, which a bearer token needs there.", shown="none",
    )  # fmt: skip
    bearer_auth_identity_pool_id: str | None = option(
        "schema.registry.bearer.auth.identity.pool.id", in_header,
        "The identity pool in Confluent Cloud that a bearer token belongs to.", shown="none",
    )  # fmt: skip
    ssl_truststore_location: str | None = _as_kafkas("ssl_truststore_location")
    ssl_truststore_password: Secret | None = _as_kafkas("ssl_truststore_password")
    ssl_truststore_type: str | None = _as_kafkas("ssl_truststore_type")
    ssl_truststore_certificates: str | None = _as_kafkas("ssl_truststore_certificates")
    ssl_keystore_location: str | None = _as_kafkas("ssl_keystore_location")
    ssl_keystore_password: Secret | None = _as_kafkas("ssl_keystore_password")
    ssl_keystore_type: str | None = _as_kafkas("ssl_keystore_type")
    ssl_keystore_key: Secret | None = _as_kafkas("ssl_keystore_key")
    ssl_keystore_certificate_chain: str | None = _as_kafkas("ssl_keystore_certificate_chain")
    ssl_key_password: Secret | None = _as_kafkas("ssl_key_password")
    ssl_endpoint_identification_algorithm: str = _as_kafkas("ssl_endpoint_identification_algorithm")
    ssl_protocol: str = _as_kafkas("ssl_protocol")
    ssl_enabled_protocols: tuple[str, ...] = _as_kafkas("ssl_enabled_protocols")
    ssl_cipher_suites: tuple[str, ...] = _as_kafkas("ssl_cipher_suites")
    proxy_host: str | None = option(
        "schema.registry.proxy.host", host,
        "A proxy between this client and the registry, by HTTP. Without it, the one that the environment names "
        "(`https_proxy`, `http_proxy`, `no_proxy`).",
        shown="none", secret=True,
    )  # fmt: skip
    proxy_port: int | None = option(
        "schema.registry.proxy.port", integer(1, 65_535), "The port of the proxy.", shown="none"
    )
    http_connect_timeout_ms: int = option(
        "schema.registry.http.connect.timeout.ms", integer(1),
        "How long one attempt to connect to a registry may take.", default=10_000,
    )  # fmt: skip
    http_read_timeout_ms: int = option(
        "schema.registry.http.read.timeout.ms", integer(1),
        "How long one request to a registry may take, with all of its answer.", default=30_000,
    )  # fmt: skip
    max_retries: int = option(
        "schema.registry.max.retries", integer(0),
        "How often a request is repeated where no registry answers, before a query starts or a batch is written. A "
        "running stream waits as long as it waits for brokers, see `maxBrokerOutage`.",
        default=3,
    )  # fmt: skip
    retries_wait_ms: int = option(
        "schema.registry.retries.wait.ms", integer(1), "Pause before a request is repeated. It doubles each time.",
        default=1_000,
    )  # fmt: skip
    retries_max_wait_ms: int = option(
        "schema.registry.retries.max.wait.ms", integer(1), "The longest pause before a request is repeated.",
        default=20_000,
    )  # fmt: skip

    @property
    def shown_urls(self) -> str:
        """The URLs without users and passwords."""
        return ", ".join(shown(url) for url in self.url)

    @property
    def tls(self) -> Security:
        """The options of TLS by Kafka's names."""
        return Security(security_protocol="SSL", **{attribute: getattr(self, attribute) for attribute in KAFKAS})


def shown(url: Secret) -> str:
    """A URL without user and password."""
    parts = urlsplit(url.text)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def user_and_password(registry: SchemaRegistry, url: Secret) -> str | None:
    """``user:password`` for a URL; None where there is none."""
    if registry.basic_auth_user_info is not None:
        return registry.basic_auth_user_info.text
    user, at, _ = urlsplit(url.text).netloc.rpartition("@")
    return unquote(user) if at else None


def is_file(url: str) -> bool:
    """Whether tokens are in a file, and not asked of an endpoint."""
    return urlsplit(url).scheme == "file"


def contradiction(registry: SchemaRegistry) -> str | None:
    """Why the options make no sense together, without the value of any secret; None if they do."""
    given = registry.given()
    if not registry.url:
        return f"{given[0]} needs schema.registry.url" if given else None
    return _login_problem(registry, set(given)) or _way_problem(registry, given)


def as_issuers(message: str) -> str:
    """A text about Kafka's token endpoint as that of the registry's."""
    name = f"{PREFIX}bearer.auth.issuer.endpoint.url"
    return message.replace("kafka.sasl.oauthbearer.token.endpoint.url", name)


BASIC, BEARER = f"{PREFIX}basic.auth.", f"{PREFIX}bearer.auth."
INFO, TOKEN, ISSUER = f"{BASIC}user.info", f"{BEARER}token", f"{BEARER}issuer.endpoint.url"
IN_URL = "a user in schema.registry.url"
SOURCES = {"USER_INFO": INFO, "URL": IN_URL, "STATIC_TOKEN": TOKEN, "OAUTHBEARER": ISSUER}
"""What each source of credentials takes them from."""
OF_ISSUER = (f"{BEARER}client.id", f"{BEARER}client.secret", f"{BEARER}scope")
OF_TOKEN = (f"{BEARER}logical.cluster", f"{BEARER}identity.pool.id")


def _login_problem(registry: SchemaRegistry, given: set[str]) -> str | None:
    """Why a login is refused: there is one at most, and it is whole."""
    in_url = {IN_URL} if any("@" in urlsplit(url.text).netloc for url in registry.url) else set()
    logins = sorted({INFO, TOKEN, ISSUER} & given | in_url)
    if len(logins) > 1:
        return f"{logins[0]} and {logins[1]} are both given: one of them"
    for kind, source in (
        ("basic", registry.basic_auth_credentials_source), ("bearer", registry.bearer_auth_credentials_source)
    ):  # fmt: skip
        if source is not None and [SOURCES[source]] != logins:
            return f"{PREFIX}{kind}.auth.credentials.source ({source}) needs {SOURCES[source]}"
    if registry.basic_auth_user_info is not None and ":" not in registry.basic_auth_user_info.text:
        return f"{INFO} must be user:password"
    issuer = registry.bearer_auth_issuer_endpoint_url
    if issuer is not None and is_file(issuer.text):
        if given & set(OF_ISSUER):
            return f"{ISSUER} is a file, so client id, secret and scope have no effect: remove them"
    elif logins == [ISSUER] and (missing := [name for name in OF_ISSUER[:2] if name not in given]):
        return f"{ISSUER} needs {' and '.join(missing)}"
    for names_of, takers in ((OF_ISSUER, [ISSUER]), (OF_TOKEN, [ISSUER, TOKEN])):
        useless = [name for name in names_of if name in given]
        if useless and not set(takers) & set(logins):
            return f"{useless[0]} needs {' or '.join(takers)}"
    return None


def _way_problem(registry: SchemaRegistry, given: list[str]) -> str | None:
    host, port = f"{PREFIX}proxy.host", f"{PREFIX}proxy.port"
    if (host in given) != (port in given):
        return f"{host} and {port} need each other"
    ssl = [name for name in given if name.startswith(f"{PREFIX}ssl.")]
    if ssl and not any(url.text.startswith("https:") for url in registry.url):
        return f"{ssl[0]} needs an https URL in schema.registry.url, or nothing would be encrypted"
    if registry.retries_wait_ms > registry.retries_max_wait_ms:
        return (
            f"{PREFIX}retries.wait.ms ({registry.retries_wait_ms}) must not be above {PREFIX}retries.max.wait.ms "
            f"({registry.retries_max_wait_ms})"
        )
    return None
