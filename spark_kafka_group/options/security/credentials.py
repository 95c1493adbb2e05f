"""Credentials of a connection, from Kafka's ``sasl.*`` settings and the login module's options.

Tokens may come from allowed places only, as Kafka 4 has its system property for it. An option may come from another
person: it should not make each node send secrets in the clear, or hand the files of its disk to brokers.
"""

from __future__ import annotations

import importlib.util
import math
import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.security.jaas import KNOWN_OPTIONS, QUOTES, LoginModule
from spark_kafka_group.options.security.mechanisms import MECHANISMS, AwsMskIam, Gssapi, Mechanism
from spark_kafka_group.options.security.settings import Security
from spark_kafka_group.text.foreign_text import Secret, shortened
from spark_kafka_group.values import user_classes

VARIABLE = "SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS"


def check(url: str) -> None:
    """Refuse a URL, unnamed, that is not https, unless this process's environment allows it. Raises OptionError."""
    scheme = urlsplit(url).scheme
    if scheme == "https" or url in {allowed.strip() for allowed in os.environ.get(VARIABLE, "").split(",")}:
        return
    why = "a file" if scheme == "file" else "http, by which the client's secret and the token go unencrypted"
    raise OptionError(
        f"kafka.sasl.oauthbearer.token.endpoint.url is {why}: "
        f"{'' if scheme == 'file' else 'take https, or '}name this URL in the environment variable {VARIABLE} "
        f"(comma-separated), on the driver and on the executors (spark.executorEnv.{VARIABLE})"
    )


JAVA_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
"""Java's, which ask sasl.oauthbearer.token.endpoint.url, as is done here without naming them."""

AWS_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
"""Java's, which configurations for MSK name. It is not needed here."""
KERBEROS_OPTIONS = ("principal", "keyTab", "ticketCache", "serviceName")
KERBEROS_SWITCHES = ("useKeyTab", "useTicketCache")
KERBEROS_IGNORED = ("storeKey", "doNotPrompt", "renewTGT", "refreshKrb5Config", "isInitiator", "debug")
AWS_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion")

TOKEN_AUTH = "tokenauth"
CLAIM = "unsecuredLogin"
EXTENSION = "extension_"


@dataclass(frozen=True)
class UserPassword:
    """For PLAIN and SCRAM; with SCRAM also the id of a delegation token and its HMAC."""

    username: str
    password: Secret
    of_token: bool = False


@dataclass(frozen=True)
class ClientCredentials:
    """OAuth's client credentials grant: tokens are asked of an endpoint."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TokenFile:
    """A file with a token in it, looked at for each connection, as something else replaces it."""

    path: str
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class UnsecuredToken:
    """A token without signature, for development: brokers accept it unless they are configured otherwise."""

    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...]
    lifetime_s: float
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class OwnTokens:
    """``module:Class`` of the user's own with ``token()``."""

    name: str


@dataclass(frozen=True)
class AwsCredentials:
    """AWS's, by options of Java's IAMLoginModule. Without any, botocore looks where AWS's tools do."""

    profile: str | None = None
    role_arn: str | None = None
    role_session_name: str | None = None
    sts_region: str | None = None


@dataclass(frozen=True)
class Kerberos:
    """Tickets of a keytab or, without one, of a ticket cache, the default one if it has no name."""

    service: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


Credentials = UserPassword | AwsCredentials | Kerberos | ClientCredentials | TokenFile | UnsecuredToken | OwnTokens


def credentials(security: Security) -> Credentials:
    """The credentials to authenticate with. Raises OptionError before any network call, when something is missing,
    contradicts, or would have no effect. Never with a secret."""
    if security.sasl_mechanism is None:
        raise OptionError(
            f"kafka.sasl.mechanism is missing, which {security.security_protocol} needs: one of "
            f"{', '.join(MECHANISMS)} (GSSAPI is Kafka's default)"
        )
    mechanism, module = MECHANISMS[security.sasl_mechanism], security.sasl_jaas_config
    if module is not None and module.name != mechanism.login_module:
        others = [name for name, other in MECHANISMS.items() if other.login_module == module.name]
        # No other name is shown: if quotes are missing, it may be a part of a password.
        named = (
            f"names {module.short_name}: it is for {' and '.join(others)}" if others else "begins with another class"
        )
        raise OptionError(
            f"kafka.sasl.jaas.config {named}; kafka.sasl.mechanism ({mechanism.name}) needs {mechanism.login_module}"
        )
    _check_mechanism(security, mechanism)
    if mechanism.takes_password:
        return _user_password(security, mechanism, module)
    if isinstance(mechanism, AwsMskIam):
        return _aws(security, mechanism, module)
    if isinstance(mechanism, Gssapi):
        return _kerberos(security, mechanism, module)
    return _oauth(security, module or LoginModule(mechanism.login_module))


def _check_mechanism(security: Security, mechanism: Mechanism) -> None:
    if mechanism.needs_tls and not security.tls:
        raise OptionError(f"kafka.sasl.mechanism {mechanism.name} needs kafka.security.protocol SASL_SSL")
    if security.sasl_kerberos_service_name is not None and not isinstance(mechanism, Gssapi):
        raise OptionError(
            f"kafka.sasl.kerberos.service.name is for GSSAPI, and kafka.sasl.mechanism is {mechanism.name}: remove it"
        )
    handler = security.sasl_client_callback_handler_class
    if handler is not None and (handler != AWS_HANDLER or not isinstance(mechanism, AwsMskIam)):
        raise OptionError(
            f"kafka.sasl.client.callback.handler.class ({shortened(handler)}) is a Java class, which cannot run here: "
            f"only {AWS_HANDLER} is accepted, with AWS_MSK_IAM"
        )


def _refuse_oauth(security: Security, mechanism: Mechanism) -> None:
    useless = security.given_with("sasl.oauthbearer") + security.given_with("sasl.login")
    if useless:
        raise OptionError(f"{useless[0]} is for OAUTHBEARER, and kafka.sasl.mechanism is {mechanism.name}: remove it")


def _aws(security: Security, mechanism: Mechanism, module: LoginModule | None) -> AwsCredentials:
    _refuse_oauth(security, mechanism)
    module = module or LoginModule(mechanism.login_module)
    _refuse_others(module, set(AWS_OPTIONS))
    profile, role_arn, role_session_name, sts_region = (module.get(name) or None for name in AWS_OPTIONS)
    for name, value in (("awsRoleSessionName", role_session_name), ("awsStsRegion", sts_region)):
        if value is not None and role_arn is None:
            raise OptionError(f"kafka.sasl.jaas.config has {name}, which has no effect without awsRoleArn")
    _check_installed(mechanism, "botocore")
    return AwsCredentials(profile, role_arn, role_session_name, sts_region)


def _kerberos(security: Security, mechanism: Mechanism, module: LoginModule | None) -> Kerberos:
    """By the options of Java's Krb5LoginModule. Those of its login that have no meaning here are passed over."""
    _refuse_oauth(security, mechanism)
    either = 'useKeyTab=true keyTab="..." principal="..."'
    module = _given(module, mechanism, f"{either}; or {mechanism.login_module} required useTicketCache=true")
    _refuse_others(module, {*KERBEROS_OPTIONS, *KERBEROS_SWITCHES, *KERBEROS_IGNORED})
    principal, keytab, ticket_cache, in_module = (module.get(name) or None for name in KERBEROS_OPTIONS)
    service = security.sasl_kerberos_service_name or in_module
    if service is None:
        raise OptionError(
            "kafka.sasl.kerberos.service.name is missing, which GSSAPI needs: the first part of the brokers' "
            "principals, as kafka in kafka/host@REALM"
        )
    by_keytab = _is_by_keytab(module, principal, keytab)
    _check_installed(mechanism, "gssapi")
    return Kerberos(service, principal, keytab if by_keytab else None, None if by_keytab else ticket_cache)


def _is_by_keytab(module: LoginModule, principal: str | None, keytab: str | None) -> bool:
    """Whether the login is by keytab, whose file is then there; else it is by ticket cache."""
    by_keytab, by_cache = (_switch(module, name) for name in KERBEROS_SWITCHES)
    if not by_keytab and not by_cache:
        raise OptionError(
            "kafka.sasl.jaas.config needs useKeyTab=true with keyTab and principal, or useTicketCache=true"
        )
    if by_keytab:
        if not keytab or not principal:
            missing = "principal" if keytab else "keyTab"
            raise OptionError(f'kafka.sasl.jaas.config has useKeyTab=true, which needs {missing}="..."')
        from spark_kafka_group.options.security import stores

        stores.file_of("keyTab in kafka.sasl.jaas.config", keytab)
    return by_keytab


def _given(module: LoginModule | None, mechanism: Mechanism, options: str) -> LoginModule:
    if module is None:
        raise OptionError(
            f"kafka.sasl.jaas.config is missing, which {mechanism.name} needs: {mechanism.login_module} required "
            f"{options};"
        )
    return module


def _switch(module: LoginModule, name: str) -> bool:
    value = (module.get(name) or "false").lower()
    if value not in ("true", "false"):
        raise OptionError(f"kafka.sasl.jaas.config must have {name}=true or {name}=false")
    return value == "true"


def _check_installed(mechanism: Mechanism, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise OptionError(
            f"kafka.sasl.mechanism {mechanism.name} needs the package {package}: install it with pip on the "
            f"driver and executors"
        )


def _user_password(security: Security, mechanism: Mechanism, module: LoginModule | None) -> UserPassword:
    _refuse_oauth(security, mechanism)
    module = _given(module, mechanism, 'username="..." password="..."')
    _refuse_others(module, {"username", "password"} | ({TOKEN_AUTH} if mechanism.takes_delegation_tokens else set()))
    of_token = module.get(TOKEN_AUTH)
    if of_token is not None and of_token.lower() not in ("true", "false"):
        raise OptionError(f'kafka.sasl.jaas.config must have {TOKEN_AUTH}="true" or {TOKEN_AUTH}="false"')
    username, password = module.get("username"), module.get("password")
    if not username or not password:
        missing = "password" if username else "username"
        raise OptionError(f'kafka.sasl.jaas.config has no {missing}="..." in {module.short_name}')
    return UserPassword(username, Secret(password), (of_token or "").lower() == "true")


def _oauth(security: Security, module: LoginModule) -> Credentials:
    handler, endpoint = security.sasl_login_callback_handler_class, security.sasl_oauthbearer_token_endpoint_url
    if handler is not None and handler not in JAVA_HANDLERS:
        if ":" not in handler:
            raise OptionError(
                f"kafka.sasl.login.callback.handler.class ({shortened(handler)}) is a Java class: name module:Class of "
                f"a Python class with token(), or give kafka.sasl.oauthbearer.token.endpoint.url"
            )
        useless = security.given_with("sasl.oauthbearer")
        if useless or module.options:
            raise OptionError(
                f"{(useless or ['options in kafka.sasl.jaas.config'])[0]} cannot have an effect: "
                f"kafka.sasl.login.callback.handler.class ({shortened(handler)}) makes the tokens"
            )
        user_classes.load_class("kafka.sasl.login.callback.handler.class", handler, ["token"])
        return OwnTokens(handler)
    if endpoint is not None:
        return _from_endpoint(security, module, endpoint.text)
    if handler is not None:
        raise OptionError(
            f"kafka.sasl.login.callback.handler.class ({handler}) needs kafka.sasl.oauthbearer.token.endpoint.url"
        )
    useless = security.given_with("sasl.oauthbearer")
    if useless:
        raise OptionError(f"{useless[0]} needs kafka.sasl.oauthbearer.token.endpoint.url")
    if any(name.startswith(CLAIM) for name in module.names()):
        return _unsecured(module)
    raise OptionError(
        "OAUTHBEARER needs one of kafka.sasl.oauthbearer.token.endpoint.url, kafka.sasl.login.callback.handler.class "
        'or, for development, unsecuredLoginStringClaim_sub="..." in kafka.sasl.jaas.config'
    )


def _from_endpoint(security: Security, module: LoginModule, url: str) -> Credentials:
    check(url)
    extensions = _prefixed(module, EXTENSION)
    parts = urlsplit(url)
    if parts.scheme == "file":
        if (
            security.sasl_oauthbearer_client_credentials_client_id
            or security.sasl_oauthbearer_client_credentials_client_secret
            or security.sasl_oauthbearer_scope
        ):
            raise OptionError(
                "kafka.sasl.oauthbearer.token.endpoint.url is a file, so client id, secret and scope have no effect: "
                "remove them"
            )
        _refuse_others(module, (), EXTENSION)
        return TokenFile(unquote(parts.path), extensions)
    client = _client(security, module)
    return ClientCredentials(
        url, str(client["clientId"]), Secret(str(client["clientSecret"])), client["scope"], extensions
    )


def _client(security: Security, module: LoginModule) -> dict[str, str | None]:
    """Client id, secret and scope, each from its own option or from the login module."""
    _refuse_others(module, {"clientId", "clientSecret", "scope"}, EXTENSION)
    given = {
        "client.credentials.client.id": (security.sasl_oauthbearer_client_credentials_client_id, "clientId"),
        "client.credentials.client.secret": (
            security.sasl_oauthbearer_client_credentials_client_secret
            and security.sasl_oauthbearer_client_credentials_client_secret.text,
            "clientSecret",
        ),
        "scope": (security.sasl_oauthbearer_scope, "scope"),
    }
    client: dict[str, str | None] = {}
    for name, (value, in_module) in given.items():
        if value is not None and module.get(in_module) is not None:
            raise OptionError(
                f"kafka.sasl.oauthbearer.{name} is given twice: also as {in_module} in kafka.sasl.jaas.config"
            )
        client[in_module] = value or module.get(in_module)
    for name in ("clientId", "clientSecret"):
        if not client[name]:
            option = "id" if name == "clientId" else "secret"
            raise OptionError(
                f"kafka.sasl.oauthbearer.token.endpoint.url needs "
                f"kafka.sasl.oauthbearer.client.credentials.client.{option}, or {name} in kafka.sasl.jaas.config"
            )
    return client


def _unsecured(module: LoginModule) -> UnsecuredToken:
    """As Kafka's OAuthBearerUnsecuredLoginCallbackHandler has its options."""
    claims: dict[str, str | float | tuple[str, ...]] = {}
    known = {f"{CLAIM}LifetimeSeconds", f"{CLAIM}PrincipalClaimName", f"{CLAIM}ScopeClaimName"}
    for kind in ("StringClaim_", "NumberClaim_", "ListClaim_"):
        for name, value in _prefixed(module, f"{CLAIM}{kind}"):
            known.add(f"{CLAIM}{kind}{name}")
            if kind == "NumberClaim_":
                claims[name] = _number(module, f"{CLAIM}{kind}{name}", value)
            else:
                # The first character separates the items.
                claims[name] = value if kind == "StringClaim_" else tuple(value[1:].split(value[:1])) if value else ()
    principal = module.get(f"{CLAIM}PrincipalClaimName") or "sub"
    if not isinstance(claims.get(principal), str):
        claim = "sub" if principal == "sub" else f"<the claim that {CLAIM}PrincipalClaimName says>"
        raise OptionError(f'kafka.sasl.jaas.config has no {CLAIM}StringClaim_{claim}="...", which names the user')
    extensions = _prefixed(module, f"{CLAIM}Extension_")
    _refuse_others(module, known, f"{CLAIM}Extension_")
    lifetime = module.get(f"{CLAIM}LifetimeSeconds")
    lifetime_s = 3600.0 if lifetime is None else _number(module, f"{CLAIM}LifetimeSeconds", lifetime)
    return UnsecuredToken(tuple(claims.items()), lifetime_s, extensions)


def _number(module: LoginModule, name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError(f"kafka.sasl.jaas.config must have a number for {module.shown(name)}")
    return number


def _prefixed(module: LoginModule, prefix: str) -> tuple[tuple[str, str], ...]:
    return tuple((name.removeprefix(prefix), value.text) for name, value in module.options if name.startswith(prefix))


def _refuse_others(module: LoginModule, known: set[str] | tuple[str, ...], prefix: str | None = None) -> None:
    for name in sorted(module.names() - set(known)):
        if prefix is None or not name.startswith(prefix):
            takes = ", ".join(sorted(set(known) & KNOWN_OPTIONS)) or "nothing"
            raise OptionError(
                f"kafka.sasl.jaas.config has {module.shown(name)}, which would have no effect: {module.short_name} "
                f"takes {takes} here; {QUOTES}"
            )
