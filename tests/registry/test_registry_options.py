"""Options of schema registries: refused before anything is asked, and no secret is shown."""

import dataclasses
import pickle
import re

import pytest

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.checks import check_registry
from spark_kafka_group.options.given_values import values
from spark_kafka_group.options.schema_registry import PREFIX, SchemaRegistry, registrys
from spark_kafka_group.options.security import Security

HUSH = "hush-7f3a"
URL = "http://localhost:8081"
TLS = "https://localhost:8081"
DECLARED = {field.metadata["name"].lower(): ("registry", field) for field in dataclasses.fields(SchemaRegistry)}


def parse(url=URL, **given):
    """Options by names that have underscores for dots."""
    named = {f"{PREFIX}{name.replace('_', '.')}": value for name, value in given.items()}
    raw = named if url is None else named | {f"{PREFIX}url": url}
    registry = SchemaRegistry(**values(raw, DECLARED, ["registry"], str)["registry"])
    check_registry(registry)
    return registry


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8081", "schema.registry.url must be a URL with http or https"),
        (f"ftp://{HUSH}@localhost", "must be a URL with http or https"),
        ("http://localhost:99999", "must be a URL with a valid host and port"),
        (f"{URL},", "has an empty name: look for a stray comma"),
        (f"{URL}?key={HUSH}", "must be URLs such as http://localhost:8081, comma-separated, with nothing after"),
        (f"http://{HUSH}@localhost", "must have both user and password before an @, or neither"),
        ("http://", "must be URLs such as http://localhost:8081"),
        ("http://local host", "must be a URL of ASCII characters without spaces"),
    ],
)
def test_a_url_that_is_none_is_refused_without_its_text(url, message):
    with pytest.raises(OptionError, match=message) as raised:
        parse(url)
    assert HUSH not in str(raised.value)


LOGIN = {"basic_auth_user_info": f"me:{HUSH}"}
ISSUER = {"bearer_auth_issuer_endpoint_url": "https://idp/token"}
CLIENT = {"bearer_auth_client_id": "me", "bearer_auth_client_secret": HUSH}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": None, **LOGIN}, "schema.registry.basic.auth.user.info needs schema.registry.url"),
        ({"basic_auth_user_info": HUSH}, "schema.registry.basic.auth.user.info must be user:password"),
        ({"basic_auth_credentials_source": "USER_INFO"}, r"source .USER_INFO. needs .*basic.auth.user.info"),
        ({"basic_auth_credentials_source": "URL", **LOGIN}, r"source .URL. needs a user in schema.registry.url"),
        ({"basic_auth_credentials_source": "SASL_INHERIT"}, "must be one of USER_INFO, URL"),
        ({"url": f"http://me:{HUSH}@localhost", **LOGIN}, "a user in schema.registry.url and .*info are both giv"),
        ({"bearer_auth_token": HUSH, **LOGIN}, "schema.registry.basic.auth.user.info and .*bearer.auth.token are both"),
        ({"bearer_auth_token": HUSH, **ISSUER, **CLIENT}, "issuer.endpoint.url and .*auth.token are both given"),
        ({"bearer_auth_credentials_source": "STATIC_TOKEN"}, r"STATIC_TOKEN. needs schema.registry.bearer.auth.token"),
        ({"bearer_auth_credentials_source": "OAUTHBEARER", "bearer_auth_token": HUSH}, "needs .*issuer.endpoint.url"),
        (ISSUER, "issuer.endpoint.url needs schema.registry.bearer.auth.client.id and .*client.secret"),
        (CLIENT, "schema.registry.bearer.auth.client.id needs schema.registry.bearer.auth.issuer.endpoint.url"),
        ({"bearer_auth_scope": "s"}, "schema.registry.bearer.auth.scope needs .*issuer.endpoint.url"),
        ({"bearer_auth_logical_cluster": "l", **LOGIN}, "logical.cluster needs .*issuer.endpoint.url or .*token"),
        ({**CLIENT, "bearer_auth_issuer_endpoint_url": f"http://idp/{HUSH}"},
         "schema.registry.bearer.auth.issuer.endpoint.url is http, by which"),
        ({**CLIENT, "bearer_auth_issuer_endpoint_url": "file:/t"}, "url is a file, so client id, secret and scope"),
        ({"bearer_auth_token": f"{HUSH}\n{HUSH}"}, "schema.registry.bearer.auth.token must be a token: letters"),
        ({"bearer_auth_token": "t", "bearer_auth_logical_cluster": "l\nm"}, "must be ASCII characters without line en"),
        ({"proxy_host": f"http://me:{HUSH}@p"}, "schema.registry.proxy.host must be a host's name or address alone"),
        ({"proxy_host": "p"}, "schema.registry.proxy.host and schema.registry.proxy.port need each other"),
        ({"proxy_port": "70000"}, "schema.registry.proxy.port .70000. must be between 1 and 65535"),
        ({"ssl_truststore_location": "/t"}, "schema.registry.ssl.truststore.location needs an https URL"),
        ({"url": TLS, "ssl_truststore_location": "/none"}, r"^schema.registry.ssl.truststore.location \(/none\) can"),
        ({"url": TLS, "ssl_truststore_password": HUSH}, "^schema.registry.ssl.truststore.password needs schema"),
        ({"url": TLS, "ssl_keystore_location": f"-----BEGIN {HUSH}"}, "Give PEM itself in schema.registry.ssl.keysto"),
        ({"retries_wait_ms": "30000"}, r"retries.wait.ms .30000. must not be above .*retries.max.wait.ms .20"),
    ],
)  # fmt: skip
def test_what_contradicts_or_has_no_effect_is_refused(given, message):
    with pytest.raises(OptionError, match=message) as raised:
        parse(**given)
    assert HUSH not in str(raised.value)
    assert "kafka.ssl" not in str(raised.value)


def test_secrets_are_in_no_representation_and_travel_to_tasks():
    registry = parse(f"http://me:{HUSH}@one, {URL}/path/", http_read_timeout_ms="5")
    assert repr(registry) == "SchemaRegistry(schema.registry.url, schema.registry.http.read.timeout.ms)"
    assert registry.shown_urls == f"http://one, {URL}/path"
    assert pickle.loads(pickle.dumps(registry)) == registry
    shown = [repr(getattr(parse(**CLIENT, **ISSUER), field.name)) for field in dataclasses.fields(SchemaRegistry)]
    assert not any(HUSH in each for each in shown)


def test_a_token_has_no_line_end_of_its_file():
    assert parse(bearer_auth_token=f"{HUSH}\n").bearer_auth_token.text == HUSH


def test_each_option_of_tls_is_kafka_s_by_another_prefix():
    own = [field.metadata for field in dataclasses.fields(SchemaRegistry) if field.name.startswith("ssl_")]
    kafkas = [field.metadata for field in dataclasses.fields(Security) if field.name.startswith("ssl_")]
    assert [each["name"] for each in own] == [registrys(each["name"]) for each in kafkas]
    assert all(re.fullmatch(r"As `kafka\.ssl\.[a-z.]+`, for the registry\.", each["doc"]) for each in own)
