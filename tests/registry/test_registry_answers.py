"""What answers at schema.registry.url is no registry, or does not end: one clear sentence, within its time."""

import json
import time

import pytest
from support import a_full_queue
from support.http_answers import endpoint

from spark_kafka_group import GroupKafkaDataSource
from spark_kafka_group.errors import GroupKafkaError, OptionError, RegistryError, RegistryTimeoutError
from spark_kafka_group.executor.schemas import registry_requests
from spark_kafka_group.executor.schemas.registry import Registry, RegistryPatience
from spark_kafka_group.options.schema_registry import SchemaRegistry, urls

OK = "HTTP/1.1 200 OK\r\n"
HUSH = "hush-7f3a"
NO_REGISTRY = "as no schema registry does: check host, port and path of schema.registry.url"


def asking(url, **more):
    return Registry(SchemaRegistry(url=urls(url), **{"max_retries": 0} | more))


def latest(answer, slowly=b"", **more):
    """Ask a server that answers this."""
    with endpoint(answer, slowly) as (port, asked):
        try:
            return asking(f"http://me:{HUSH}@127.0.0.1:{port}/v7", **more).latest("orders")
        finally:
            assert asked[0][0][0] == "GET /v7/subjects/orders/versions/latest HTTP/1.1"
            assert len(asked) == 1


def schema(**fields):
    return OK + "\r\n" + json.dumps({"schema": '"int"', **fields})


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (f"{OK}\r\n<html>Hello</html>", RegistryError, f"/latest with b'<html>Hello</html>', {NO_REGISTRY}"),
        (f"{OK}\r\n", RegistryError, f"with b'', {NO_REGISTRY}"),
        (f"{OK}\r\n{'[' * 10_000}", RegistryError, NO_REGISTRY),
        (f"{OK}\r\n\x00\x01", RegistryError, NO_REGISTRY),
        (f'{OK}\r\n{{"schema": NaN}}', RegistryError, NO_REGISTRY),
        ("SSH-2.0-OpenSSH\r\n", RegistryError, f"with something else than HTTP .BadStatusLine., {NO_REGISTRY}"),
        (f"{OK}\r\n[1]", RegistryError, "with something else than a schema, as no schema registry does"),
        (f"{OK}\r\n{{}}", RegistryError, "with something else than a schema"),
        (schema(schema={"type": "int"}), RegistryError, "with something else than a schema"),
        (schema(schemaType=7), RegistryError, "with something else than a schema"),
        (schema(version=True), RegistryError, "with something else than a schema"),
        (schema(id="1"), RegistryError, "with something else than a schema"),
        (schema(references=["a"]), RegistryError, "with something else than a schema"),
        (schema(references=[{"name": "a", "subject": "b"}]), RegistryError, "with something else than a schema"),
        (schema(references=7), RegistryError, "with something else than a schema"),
        ("HTTP/1.1 404 No\r\n\r\n<html>", RegistryError, f"HTTP 404, {NO_REGISTRY}"),
        ('HTTP/1.1 404 No\r\n\r\n{"error_code": 404, "message": "HTTP 404 Not Found"}', RegistryError, NO_REGISTRY),
        ('HTTP/1.1 404 No\r\n\r\n{"error_code": "40401"}', RegistryError, NO_REGISTRY),
        ("HTTP/1.1 400 No\r\n\r\n[]", RegistryError, f"HTTP 400, {NO_REGISTRY}"),
        ("HTTP/1.1 401 No\r\n\r\n", RegistryError, "HTTP 401. It was asked as user me: check user, password and r"),
        ('HTTP/1.1 422 No\r\n\r\n{"error_code": 42201, "message": "\\u001b[2J"}', RegistryError, r"422: \\x1b\[2J$"),
        ("HTTP/1.1 500 No\r\n\r\n<html>", RegistryTimeoutError, "answers HTTP 500$"),
        ("HTTP/1.1 429 No\r\n\r\n", RegistryTimeoutError, "answers HTTP 429$"),
        (f"{OK}Content-Length: 99\r\n\r\n{{", RegistryTimeoutError, "its answer ended too early"),
        ("", RegistryTimeoutError, "closes the connection without an answer: check that it is a registry's port"),
    ],
)  # fmt: skip
def test_what_is_no_registry_s_answer_is_said(answer, error, message):
    with pytest.raises(error, match=message) as raised:
        latest(answer)
    assert type(raised.value) is error
    assert HUSH not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_guid_that_a_proxy_does_not_have_is_no_answer_of_a_registry():
    for kind, message in {"text/html": NO_REGISTRY, "application/json": "it finds no schema by its GUID"}.items():
        answer = f"HTTP/1.1 404 No\r\nContent-Type: {kind}\r\nContent-Length: 0\r\n\r\n"
        with endpoint(answer) as (port, _), pytest.raises(RegistryError, match=message):
            asking(f"http://127.0.0.1:{port}").schemas(["341eac70-1096-841b-ae35-3e283e3ea2e8"], RegistryPatience(1))


def test_a_schema_may_lack_all_but_its_text():
    found = latest(schema())
    assert (found.text, found.kind, found.id, found.references) == ('"int"', "AVRO", None, ())


def test_a_redirect_is_not_followed():
    with endpoint(schema()) as (elsewhere, asked):
        moved = f"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:{elsewhere}/\r\nContent-Length: 0\r\n\r\n"
        with pytest.raises(
            RegistryError, match="redirects GET .* HTTP 301, .* name the registry's own URL in schema.reg"
        ):
            latest(moved)
    assert asked == []


def test_an_answer_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(registry_requests, "LARGEST", 1000)
    with pytest.raises(RegistryError, match=f"with more than 1000 bytes, {NO_REGISTRY}"):
        latest(schema(schema="x" * 1000))
    assert latest(schema(schema="x" * 900)).text == "x" * 900


@pytest.mark.parametrize("slowly", [b"x", b"X: y\r\n", b" "], ids=["status", "headers", "body"])
def test_an_answer_that_comes_slowly_has_one_deadline(slowly):
    began = time.monotonic()
    with pytest.raises(RegistryTimeoutError, match="has not answered within 300 ms"):
        latest({b"x": "", b" ": f"{OK}\r\n"}.get(slowly, OK), slowly, http_read_timeout_ms=300)
    assert time.monotonic() - began < 30


def test_a_registry_that_hangs_leaves_the_next_its_share_of_the_task_s_time():
    with endpoint("", b" ") as (hangs, _), endpoint(schema()) as (works, _):
        both = asking(f"http://127.0.0.1:{hangs},http://127.0.0.1:{works}")
        assert both.schemas([1], RegistryPatience(limit_ms=3000)).keys() == {1}
        alone = asking(f"http://127.0.0.1:{hangs}")
        began = time.monotonic()
        with pytest.raises(RegistryTimeoutError, match="in 1 attempts and 1 s: .* has not answered within 1000 ms"):
            alone.schemas([1], RegistryPatience(limit_ms=300))
        assert time.monotonic() - began < 10


def test_a_server_that_takes_no_connection_has_a_deadline_of_its_own():
    with a_full_queue() as address, pytest.raises(RegistryTimeoutError, match="has not answered within"):
        asking(f"http://{address}", http_connect_timeout_ms=200).latest("orders")


@pytest.mark.parametrize(
    ("reference", "why"),
    [({"subject": "a", "version": 1}, "needs itself"), ({"subject": "b", "version": 1}, "needs itself")],
)
def test_references_in_a_circle_are_refused(reference, why):
    with endpoint(schema(references=[{"name": "r", **reference}])) as (port, _):
        schemas = asking(f"http://127.0.0.1:{port}")
        with pytest.raises(
            RegistryError, match=f"version 1 of subject {reference['subject']} {why}, by its references"
        ):
            schemas.referenced(schemas.latest("a"))


@pytest.mark.parametrize("text", ["{", "[" * 9000])
def test_schemas_of_several_topics_that_are_no_json_are_said_in_a_sentence(text):
    with endpoint(schema(schema=text)) as (port, _):
        given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "a,b", "valueFormat": "avro"}
        with pytest.raises(OptionError, match="subject a-value: the Avro schema is no JSON"):
            GroupKafkaDataSource(given | {"schema.registry.url": f"http://127.0.0.1:{port}"}).schema()


def test_every_error_is_of_the_package():
    for answer in (
        "HTTP/1.1 999\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        OK + "A" * 70_000,
        "HTTP/1.1 204 No\r\n\r\n",
    ):
        with pytest.raises(GroupKafkaError):
            latest(answer)
