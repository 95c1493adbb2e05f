"""A schema registry is asked: two that were not written here, their outages, and logins."""

import base64
import itertools
import json
import logging
import multiprocessing
import ssl
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import name
from support.certificates import STORE_PASSWORD
from support.http_answers import endpoint, front
from support.registries import Srfake

from spark_kafka_group.errors import OptionError, RegistryError, RegistryTimeoutError, UnknownSchemaError
from spark_kafka_group.executor.schemas import registry as client
from spark_kafka_group.executor.schemas.registry import (
    RegisteredSchema,
    Registry,
    RegistryPatience,
    SchemaReference,
    registry_for,
)
from spark_kafka_group.options.checks import check_registry
from spark_kafka_group.options.schema_registry import SchemaRegistry, urls
from spark_kafka_group.options.security import Secret

ONCE = RegistryPatience(attempts=1)
OF_A_STREAM = RegistryPatience(behind_others=True)
HUSH = "hush-7f3a"


def record(*fields, called="Order"):
    return {"type": "record", "name": called, "fields": [{"name": field, "type": kind} for field, kind in fields]}


ORDER = record(("id", "long"))


def options(url, **more):
    return SchemaRegistry(url=urls(url), **{"retries_wait_ms": 1, "http_read_timeout_ms": 20_000} | more)


def asking(url, **more):
    return Registry(options(url, **more))


class Time:
    """A clock that goes on while something sleeps, and what happens meanwhile."""

    def __init__(self, *happenings):
        self.now_s, self.sleeps, self._happenings = 0.0, 0, list(happenings)

    def sleep(self, seconds):
        self.now_s += seconds
        self.sleeps += 1
        if self._happenings:
            self._happenings.pop(0)()

    def registry(self, url, **more):
        return Registry(options(url, **more), clock=lambda: self.now_s, sleep=self.sleep)


def nothing():
    pass


# What a registry has


def test_a_schema_is_had_by_its_id_and_by_its_subject_with_the_latest_or_a_given_version(registry):
    subject = name("orders")
    first = registry.register(subject, ORDER)
    second = registry.register(subject, record(("id", "long"), ("of", "string")))
    schemas = asking(registry.url)
    latest = schemas.latest(subject)
    assert (latest.id, latest.subject, latest.version, latest.kind) == (second, subject, 2, "AVRO")
    assert schemas.version(subject, 1).id == first
    found = schemas.schemas([first, second], ONCE)
    assert [json.loads(found[number].text) for number in (first, second)] == [
        ORDER,
        record(("id", "long"), ("of", "string")),
    ]


def test_a_schema_is_had_by_its_guid_where_the_registry_has_guids(srfake, apicurio):
    subject = name("orders")
    srfake.register(subject, ORDER)
    schemas = asking(srfake.url)
    guid = schemas.latest(subject).guid
    assert json.loads(schemas.schemas([guid], ONCE)[guid].text) == ORDER
    with pytest.raises(RegistryError, match="HTTP 404: it finds no schema by its GUID, only by its id"):
        asking(apicurio.url).schemas([guid], ONCE)


def test_references_come_before_the_schemas_that_need_them(registry):
    names = [name(kind) for kind in ("currency", "price", "order")]
    currency, price, order = names
    registry.register(currency, {"type": "enum", "name": "Currency", "symbols": ["EUR"]})
    needs = [{"name": "Currency", "subject": currency, "version": 1}]
    registry.register(price, record(("in", "Currency"), called="Price"), references=needs)
    needs = [*needs, {"name": "Price", "subject": price, "version": 1}]
    registry.register(order, record(("price", "Price"), ("paid", "Currency")), references=needs)
    schemas = asking(registry.url)
    found = schemas.latest(order)
    assert found.references == (SchemaReference("Currency", currency, 1), SchemaReference("Price", price, 1))
    assert [json.loads(each.text)["name"] for each in schemas.referenced(found)] == ["Currency", "Price"]


def test_schemas_of_other_formats_say_so(registry):
    subject = name("orders")
    registry.register(subject, {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, kind="JSON")
    found = asking(registry.url).latest(subject)
    assert client.of_kind(found, "JSON", "valueFormat=json", "") is found
    message = (
        f"valueFormat=avro needs a schema of type AVRO, and subject {subject} has version 1 of type 'JSON': give a"
    )
    with pytest.raises(RegistryError, match=message):
        client.of_kind(found, "AVRO", "valueFormat=avro", "give another")


def test_a_schema_is_registered_once_and_looked_up(registry):
    schemas, subject, schema = asking(registry.url), name("orders/ü "), RegisteredSchema(json.dumps(ORDER))
    number = schemas.register(subject, schema)
    assert schemas.register(subject, schema) == number
    found = schemas.lookup(subject, schema)
    assert (found.id, found.version, json.loads(found.text)) == (number, 1, ORDER)
    assert schemas.latest(subject).id == number
    with pytest.raises(UnknownSchemaError):
        schemas.lookup(subject, RegisteredSchema(json.dumps(record(("other", "int")))))


def test_subjects_and_versions_that_are_not_there_are_said_with_what_was_asked_for(registry):
    subject = name("orders")
    with pytest.raises(
        UnknownSchemaError, match=f"{registry.url} answers GET /subjects/{subject}/versions/latest with: "
    ):
        asking(registry.url).latest(subject)
    registry.register(subject, ORDER)
    with pytest.raises(
        UnknownSchemaError, match=f"answers GET /subjects/{subject}/versions/7 with: [Vv]ersion 7 not found"
    ):
        asking(registry.url).version(subject, 7)


def test_what_a_registry_refuses_is_said_in_its_words(apicurio):
    with pytest.raises(RegistryError, match="refuses POST /subjects/.*/versions with HTTP 422: Failed to discover art"):
        asking(apicurio.url).register(name("orders"), RegisteredSchema("no schema"))


# How often it is asked


def test_a_process_asks_once_for_an_id_and_a_child_of_it_asks_anew(srfake):
    subject = name("orders")
    number = srfake.register(subject, ORDER)
    with front(srfake.url) as between:
        for _ in range(3):
            shared = registry_for(options(between.url))
            shared.schemas([number], ONCE)
            shared.version(subject, 1, ONCE)
        assert between.asked == [f"GET /schemas/ids/{number}", f"GET /subjects/{subject}/versions/1"]
        with multiprocessing.get_context("fork").Pool(1) as child:
            assert child.apply(_is_another, (id(shared), between.url))
        assert registry_for(options(between.url, max_retries=7)) is not shared


def _is_another(number, url):
    return id(registry_for(options(url))) != number


def test_an_id_that_comes_a_little_later_is_waited_for(registry):
    subject, schema = name("orders"), record(("id", "long"), called=name("Order").replace("-", ""))
    number = registry.register(subject, schema) + 1
    time = Time(nothing, nothing, lambda: registry.register(subject, schema | {"name": "Late"}))
    assert number in time.registry(registry.url).schemas([number], ONCE)
    assert time.sleeps == 3


def test_an_id_that_does_not_come_is_waited_for_once_and_told_once(srfake, caplog):
    known = srfake.register(name("orders"), ORDER)
    time = Time()
    with front(srfake.url) as between:
        schemas = time.registry(between.url)
        assert schemas.schemas([known, 90_001], ONCE).keys() == {known}
        assert time.now_s == pytest.approx(10, abs=1)
        asked = len(between.asked)
        for number in (90_001, 90_002, 90_003, 90_002):
            assert schemas.schemas([number], ONCE) == {}
        assert between.asked[asked:] == ["GET /schemas/ids/90002", "GET /schemas/ids/90003"]
        assert time.now_s == pytest.approx(10, abs=1)
        time.now_s += 61
        schemas.schemas([90_001], ONCE)
        assert time.now_s == pytest.approx(81, abs=2)
    assert [line.getMessage() for line in caplog.records] == [
        f"schema registry ({between.url}) does not have schema 90001 after 10 s: values with it are malformed"
    ] * 2


# Where it does not answer


def test_a_task_of_a_stream_waits_for_a_registry_that_was_killed_tells_it_once_and_goes_on(caplog):
    def back():
        registry.start().register("orders", ORDER)

    with Srfake() as registry:
        time = Time(*[nothing] * 9, back)
        schemas = time.registry(registry.url, retries_wait_ms=1000, retries_max_wait_ms=3000)
        registry.kill()
        assert schemas.schemas([1], OF_A_STREAM).keys() == {1}
        told = [line.getMessage() for line in caplog.records]
    away = f"{registry.url} cannot be reached: Connection refused: check schema.registry.url, and whether it runs"
    assert told == [
        f"schema registry {away}. The task waits for it, and goes on",
        "schema registry answers again, after 27 s",
    ]
    assert {line.levelno for line in caplog.records} == {logging.WARNING}


def test_a_batch_read_or_a_stream_with_a_limit_fails_after_it(caplog):
    registry = Srfake()
    time = Time()
    schemas = time.registry(registry.url, retries_wait_ms=1000)
    with pytest.raises(
        RegistryTimeoutError, match="no schema registry has answered, in 5 attempts and 14 s: .*refused"
    ):
        schemas.schemas([1], RegistryPatience(limit_ms=14_000))
    assert len(caplog.records) == 0


def test_what_a_query_asks_before_it_starts_is_repeated_a_few_times():
    registry = Srfake()
    time = Time()
    with pytest.raises(RegistryTimeoutError, match="no schema registry has answered, in 4 attempts and 7 s: "):
        time.registry(registry.url, retries_wait_ms=1000).latest("orders")


def test_of_several_registries_the_next_is_asked_and_asked_first_from_then_on(srfake):
    dead, subject = Srfake(), name("orders")
    srfake.register(subject, ORDER)
    with front(dead.url) as broken, front(srfake.url) as works:
        schemas = asking(f"{dead.url}, {broken.url}/ ,{works.url}")
        assert schemas.latest(subject).version == 1
        assert schemas.latest(subject).version == 1
        assert (len(broken.asked), len(works.asked)) == (1, 2)
        works.target = dead.url
        with pytest.raises(RegistryTimeoutError) as raised:
            schemas.latest(subject)
    assert raised.match(
        f"{works.url} answers HTTP 502; .*{dead.url} cannot be reached: Connection refused.*; .*HTTP 502"
    )


PLAIN_404 = 404, b"404 page not found"
"""As proxies answer whose registry is being started again."""


def test_a_task_of_a_stream_waits_while_a_proxy_answers_in_place_of_its_registry(srfake, caplog):
    number = srfake.register(name("orders"), ORDER)
    with front(srfake.url) as proxy:
        proxy.instead = lambda _: PLAIN_404

        def back():
            proxy.instead = lambda _: None

        time = Time(*[nothing] * 9, back)
        schemas = time.registry(proxy.url, retries_wait_ms=1000, retries_max_wait_ms=3000)
        with pytest.raises(RegistryError, match="HTTP 404, as no schema registry does: check host, port and") as raised:
            schemas.schemas([number], ONCE)
        assert (type(raised.value), time.sleeps) == (RegistryError, 0)
        assert schemas.schemas([number], OF_A_STREAM).keys() == {number}
    told = [line.getMessage() for line in caplog.records]
    assert told[0].startswith(f"schema registry {proxy.url} answers GET /schemas/ids/{number} with HTTP 404, as no sch")
    assert told[1:] == ["schema registry answers again, after 27 s"]


def test_where_one_of_several_urls_leads_elsewhere_the_next_is_asked(srfake):
    subject = name("orders")
    srfake.register(subject, ORDER)
    with front(srfake.url) as elsewhere, front(srfake.url) as works:
        elsewhere.instead = lambda _: PLAIN_404
        both = asking(f"{elsewhere.url},{works.url}", max_retries=0)
        assert both.latest(subject).version == 1
        works.instead = lambda _: (503, b"")
        with pytest.raises(RegistryTimeoutError, match="answers HTTP 503; .* with HTTP 404, as no schema registry"):
            both.latest(subject)


def test_a_schema_that_was_registered_is_looked_up_until_the_registry_that_is_asked_knows_it(srfake):
    subject, schema = name("orders"), RegisteredSchema(json.dumps(ORDER))
    unknown = 404, b'{"error_code": 40403, "message": "Schema not found"}'
    with front(srfake.url) as follower:
        follower.instead = lambda asked: unknown if asked == f"POST /subjects/{subject}" else None

        def told():
            follower.instead = lambda _: None

        time = Time(nothing, told)
        assert time.registry(follower.url).registered(subject, schema, ONCE).version == 1
        assert time.sleeps == 2
        follower.instead = lambda asked: unknown if asked == f"POST /subjects/{subject}" else None
        with pytest.raises(UnknownSchemaError, match="Schema not found"):
            time.registry(follower.url).registered(subject, schema, ONCE)
        assert time.now_s == pytest.approx(11, abs=1)


def test_many_tasks_register_a_schema_at_once_and_have_one_id(registry):
    subject, schema = name("orders"), RegisteredSchema(json.dumps(ORDER))
    with ThreadPoolExecutor(8) as tasks:
        found = [*tasks.map(lambda _: asking(registry.url).registered(subject, schema).id, range(16))]
    assert len(set(found)) == 1


def test_a_schema_that_is_not_compatible_is_refused_in_the_registry_s_words(apicurio):
    subject = name("orders")
    apicurio.register(subject, ORDER)
    apicurio.ask(f"/config/{subject}", {"compatibility": "BACKWARD"}, "PUT")
    other = RegisteredSchema(json.dumps(record(("id", "string"))))
    with pytest.raises(RegistryError, match=f"refuses POST /subjects/{subject}/versions with HTTP 409: "):
        asking(apicurio.url).register(subject, other)


@pytest.mark.soak
def test_a_broker_is_no_registry(kafka):
    with pytest.raises(
        RegistryTimeoutError, match="closes the connection without an answer: check that it is a registr"
    ):
        asking(f"http://{kafka.bootstrap_servers}", max_retries=0).latest("orders")


def test_a_registry_is_asked_through_the_proxy_of_the_options(srfake):
    subject = name("orders")
    srfake.register(subject, ORDER)
    with front("") as proxy:
        through = {"proxy_host": "127.0.0.1", "proxy_port": proxy.server_address[1]}
        assert asking(srfake.url, **through).latest(subject).version == 1
        proxy.instead = lambda _: (407, b"")
        with pytest.raises(RegistryError, match=f"{srfake.url} through the proxy 127.0.0.1:[0-9]+ answers GET .* 407"):
            asking(srfake.url, **through).latest(subject)
    assert proxy.asked == [f"GET {srfake.url}/subjects/{subject}/versions/latest"] * 2


# Who asks


BASIC = f"Basic {base64.b64encode(f'me:{HUSH}:x'.encode()).decode()}"


def test_user_and_password_are_sent_from_the_option_or_from_the_url(srfake):
    subject = name("orders")
    srfake.register(subject, ORDER)
    with front(srfake.url, wants=BASIC) as guarded:
        login = {"basic_auth_user_info": Secret(f"me:{HUSH}:x")}
        assert asking(guarded.url, **login).latest(subject).version == 1
        assert asking(guarded.url.replace("//", f"//me:{HUSH}%3Ax@")).latest(subject).version == 1
        without = (
            "HTTP 401: User not authorized. It was asked without a login: give schema.registry.basic.auth.user.info"
        )
        with pytest.raises(RegistryError, match=without):
            asking(guarded.url).latest(subject)
        wrong = options(guarded.url, basic_auth_user_info=Secret(f"you:{HUSH}"))
        with pytest.raises(RegistryError, match="HTTP 403: .* It was asked as user you: check user, passw") as raised:
            Registry(wrong).latest(subject)
        assert len(guarded.asked) == 4, "no login is tried again"
    assert HUSH not in str(raised.value) + repr(wrong) + repr(options(f"http://me:{HUSH}@localhost:1"))


def test_a_token_is_sent_with_what_confluent_s_cloud_asks_for(srfake):
    subject = name("orders")
    srfake.register(subject, ORDER)
    with front(srfake.url, wants=f"Bearer {HUSH}") as guarded:
        token = {"bearer_auth_token": Secret(HUSH), "bearer_auth_logical_cluster": "lsrc-1"}
        assert asking(guarded.url, **token, bearer_auth_identity_pool_id="pool-1").latest(subject).version == 1
        sent = {header.lower(): value for header, value in guarded.headers.items()}
        assert (sent["target-sr-cluster"], sent["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1")
        with pytest.raises(
            RegistryError, match="HTTP 403.* It was asked with a bearer token: check where that is from"
        ):
            asking(guarded.url, bearer_auth_token=Secret("another")).latest(subject)


def test_a_token_is_asked_of_an_endpoint(srfake, monkeypatch):
    subject = name("orders")
    srfake.register(subject, ORDER)
    granted = f'HTTP/1.1 200 OK\r\n\r\n{{"access_token": "{HUSH}", "expires_in": 60}}'
    with endpoint(granted) as (port, asked), front(srfake.url, wants=f"Bearer {HUSH}") as guarded:
        url = f"http://127.0.0.1:{port}/token"
        issuer = {
            "bearer_auth_issuer_endpoint_url": Secret(url),
            "bearer_auth_client_id": "me",
            "bearer_auth_client_secret": Secret("s"),
        }
        with pytest.raises(OptionError, match=r"schema.registry.bearer.auth.issuer.endpoint.url is http, by which"):
            check_registry(options(guarded.url, **issuer))
        monkeypatch.setenv("SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS", url)
        check_registry(options(guarded.url, **issuer))
        schemas = asking(guarded.url, **issuer)
        assert [schemas.latest(subject).version for _ in range(2)] == [1, 1]
        assert len(asked) == 1
    with endpoint("HTTP/1.1 401 No\r\n\r\n{}") as (port, _), front(srfake.url) as guarded:
        issuer["bearer_auth_issuer_endpoint_url"] = Secret(f"http://127.0.0.1:{port}/token")
        with pytest.raises(RegistryError, match=r"schema.registry.bearer.auth.issuer.endpoint.url: no token"):
            asking(guarded.url, **issuer).latest(subject)
        assert guarded.asked == []


def test_a_token_that_is_refused_before_its_end_is_asked_for_anew_once(srfake, monkeypatch):
    subject = name("orders")
    srfake.register(subject, ORDER)
    granted = (f'HTTP/1.1 200 OK\r\n\r\n{{"access_token": "t{n}", "expires_in": 3600}}' for n in itertools.count())
    with endpoint(granted) as (port, asked), front(srfake.url, wants="Bearer t0") as guarded:
        guarded.refuses_with = 401
        schemas = asking(
            guarded.url,
            bearer_auth_issuer_endpoint_url=Secret(f"http://127.0.0.1:{port}/token"),
            bearer_auth_client_id="me",
            bearer_auth_client_secret=Secret("s"),
        )
        for token in ("t0", "t1"):
            guarded.wants = f"Bearer {token}"
            assert [schemas.latest(subject).version for _ in range(2)] == [1, 1]
        guarded.wants = "Bearer none"
        with pytest.raises(RegistryError, match="HTTP 401: .* It was asked with a bearer token: check where that is"):
            schemas.latest(subject)
        assert len(asked) == 3


def test_a_token_in_a_file_is_read_for_each_request(srfake, monkeypatch, tmp_path):
    subject, file = name("orders"), tmp_path / "token"
    srfake.register(subject, ORDER)
    issuer = {"bearer_auth_issuer_endpoint_url": Secret(f"file:{file}")}
    with front(srfake.url, wants="Bearer t0") as guarded:
        with pytest.raises(OptionError, match=r"issuer.endpoint.url is a file: name this URL in the environment var"):
            check_registry(options(guarded.url, **issuer))
        monkeypatch.setenv("SPARK_KAFKA_GROUP_OAUTH_ALLOWED_URLS", f"file:{file}")
        check_registry(options(guarded.url, **issuer))
        schemas = asking(guarded.url, **issuer)
        for token in ("t0", "t1"):
            guarded.wants = f"Bearer {token}"
            file.write_text(f"{token}\n")
            assert schemas.latest(subject).version == 1
        file.unlink()
        with pytest.raises(
            RegistryError, match=r"token in schema.registry.bearer.auth.issuer.endpoint.url \(.*No such"
        ):
            schemas.latest(subject)


# Over TLS


@pytest.fixture(scope="module")
def serving_tls(authority):
    """Of a server that asks for certificates of clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.path("broker.pem"))
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", pytest.param("JKS", marks=pytest.mark.soak)])
def test_certificates_come_from_files_of_each_kind(srfake, authority, serving_tls, kind):
    subject, password = name("orders"), Secret(STORE_PASSWORD)
    srfake.register(subject, ORDER)
    trusted = {"ssl_truststore_location": authority.truststore(kind) if kind == "JKS" else authority.certificate}
    key = {"PEM": authority.path("client.pem"), "PKCS12": authority.path("client.p12")}
    own = {"ssl_keystore_location": key[kind] if kind in key else authority.jks("client")}
    if kind == "JKS":
        trusted["ssl_truststore_password"] = password
    if kind != "PEM":
        own["ssl_keystore_password"] = password
    with front(srfake.url, tls=serving_tls) as guarded:
        check_registry(options(guarded.url, **trusted, **own))
        assert asking(guarded.url, **trusted, **own).latest(subject).version == 1
        with pytest.raises(
            RegistryError,
            match="certificate.*, see schema.registry.ssl.keystore.location|refuses this client's certificate",
        ):
            asking(guarded.url, **trusted).latest(subject)
        with pytest.raises(RegistryError, match="its certificate is not trusted: .*schema.registry.ssl.truststore.lo"):
            asking(guarded.url).latest(subject)


def test_a_certificate_for_another_name_is_refused_unless_names_are_not_compared(srfake, authority):
    authority.sign("elsewhere", san="DNS:elsewhere.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.path("elsewhere.pem"))
    trusted, subject = {"ssl_truststore_location": authority.certificate}, name("orders")
    srfake.register(subject, ORDER)
    with front(srfake.url, tls=context) as guarded:
        with pytest.raises(
            RegistryError, match="not valid for 'localhost'.*: name the registry as its certificate does"
        ):
            asking(guarded.url, **trusted).latest(subject)
        anyone = asking(guarded.url, **trusted, ssl_endpoint_identification_algorithm="")
        assert anyone.latest(subject).version == 1
