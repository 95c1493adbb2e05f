"""AWS_MSK_IAM: signatures as AWS's own library makes them, roles that are assumed and renewed, and clear errors."""

import datetime
import http.server
import importlib.util
import json
import logging
import ssl
import threading
import urllib.parse

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from support.scripted import CODES, ScriptedBroker

from spark_kafka_group.errors import AuthenticationError, BrokerError, OptionError
from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.options import Options
from spark_kafka_group.options.security.credentials import AwsCredentials
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.client import msk_iam
from spark_kafka_group.wire.client.msk_iam import Keys

MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
ROLE = "arn:aws:iam::123456789012:role/reader"
SECRET = "hush-7f3a"
REGION = "eu-west-1"
USERS = ("AKIA1", "ASIA1", "ASIA2")


class Msk(ScriptedBroker):
    """Takes requests that are signed by keys it knows; its connections are encrypted."""

    def __init__(self, topics, authority):
        super().__init__(topics)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(authority.path("broker.pem"))
        for node in self._nodes:
            node.socket = tls.wrap_socket(node.socket, server_side=True)
        self.users = []

    def _SaslHandshake(self, message):
        return {"error_code": 0, "mechanisms": [message.mechanism]}

    def _SaslAuthenticate(self, message):
        payload = json.loads(bytes(message.auth_bytes))
        user = payload["x-amz-credential"].split("/")[0]
        if payload["x-amz-signature"] != signature(payload, Credentials(user, SECRET if user in USERS else "none")):
            return {"error_code": CODES["SASL_AUTHENTICATION_FAILED"], "error_message": "Access denied"}
        self.users.append(user)
        return {"error_code": 0, "auth_bytes": b'{"version":"2020_10_22"}', "session_lifetime_ms": 0}


def signature(payload, credentials):
    """AWS's library's, of the request that the payload is for."""
    credentials.token = payload.get("x-amz-security-token")
    region, service = payload["x-amz-credential"].split("/")[2:4]
    signer = SigV4QueryAuth(credentials, service, region, expires=int(payload["x-amz-expires"]))
    action = urllib.parse.quote(payload["action"], safe="")
    request = AWSRequest("GET", url=f"https://{payload['host']}/?Action={action}")
    request.context["timestamp"] = payload["x-amz-date"]
    signer._modify_request_before_signing(request)
    return signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with nothing of AWS's but a region."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    msk_iam.keys_of.cache_clear()
    return tmp_path


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def msk(authority):
    with Msk({"orders": 1}, authority) as broker:
        yield broker


@pytest.fixture
def given(msk, authority):
    return {
        "kafka.bootstrap.servers": msk.bootstrap_servers,
        "subscribe": "orders",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": authority.certificate,
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "kafka.sasl.jaas.config": f"{MODULE} required;",
        "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }


@pytest.fixture
def sts(monkeypatch):
    """AWS's service for roles, with answers that a test gives."""
    answers, asked = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            status, body = answers.pop(0)
            self.send_response(status)
            self.send_header("Content-Type", "text/xml")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_address[1]}")
        yield answers, asked
        server.shutdown()


def assumed(user, minutes):
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    return 200, (
        f'<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
        f"<AccessKeyId>{user}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
        f"<SessionToken>a token/+=</SessionToken><Expiration>{until:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
        f"</Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )


def refused(status, code):
    return status, f"<ErrorResponse><Error><Code>{code}</Code><Message>{SECRET}</Message></Error></ErrorResponse>"


def test_driver_executors_and_tools_sign_as_aws_does(given, key, msk, caplog):
    caplog.set_level(logging.DEBUG)
    options = Options.parse(given)
    with GroupAdmin(options):
        pass
    brokers = brokers_for(options)
    assert brokers.known() == [msk.bootstrap_servers]
    brokers.leaders([], refresh=True)
    brokers.close()
    assert len(msk.users) >= 2
    assert set(msk.users) == {"AKIA1"}
    assert SECRET not in caplog.text


def test_a_role_is_assumed_and_its_credentials_are_renewed(key, sts):
    answers, asked = sts
    answers += [assumed("ASIA1", 5), assumed("ASIA2", 60)]
    keys = Keys(AwsCredentials(role_arn=ROLE, role_session_name="me", sts_region="eu-central-1"))
    assert keys.frozen().access_key == "ASIA1"
    assert keys.frozen().access_key == "ASIA2"  # the first ones end soon
    assert keys.frozen().access_key == "ASIA2"
    assert [urllib.parse.parse_qs(question)["RoleArn"] for question in asked] == [[ROLE]] * 2
    assert "RoleSessionName=me" in asked[0]


def test_a_broker_takes_the_signature_of_a_role(given, key, sts, msk):
    sts[0].append(assumed("ASIA1", 60))
    with GroupAdmin(Options.parse(given | {"kafka.sasl.jaas.config": f'{MODULE} required awsRoleArn="{ROLE}";'})):
        assert set(msk.users) == {"ASIA1"}


def test_a_role_that_must_not_be_assumed_ends_and_a_service_that_is_away_is_asked_again(key, sts):
    answers, _ = sts
    answers += [refused(403, "AccessDenied"), refused(503, "ServiceUnavailable"), assumed("ASIA1", 60)]
    keys = Keys(AwsCredentials(role_arn=ROLE))
    with pytest.raises(AuthenticationError, match=f"^role {ROLE} cannot be assumed: AccessDenied$"):
        keys.frozen()
    with pytest.raises(BrokerError, match="ServiceUnavailable"):
        keys.frozen()
    assert keys.frozen().access_key == "ASIA1"


def test_a_profile_is_taken_by_its_name(machine, given, msk):
    (machine / "credentials").write_text(f"[billing]\naws_access_key_id=AKIA1\naws_secret_access_key={SECRET}\n")
    with GroupAdmin(Options.parse(given | {"kafka.sasl.jaas.config": f'{MODULE} required awsProfileName="billing";'})):
        assert set(msk.users) == {"AKIA1"}


@pytest.mark.parametrize("region", [REGION, None])
def test_a_profile_that_does_not_exist_is_named(given, monkeypatch, region):
    if region is None:
        monkeypatch.delenv("AWS_REGION")
    other = Options.parse(given | {"kafka.sasl.jaas.config": f'{MODULE} required awsProfileName="biling";'})
    with pytest.raises(AuthenticationError, match="AWS's files have no profile biling here"), GroupAdmin(other):
        pass


def test_a_machine_without_credentials_says_where_they_are_looked_for(given):
    with pytest.raises(AuthenticationError, match="no AWS credentials are here: set AWS_ACCESS_KEY_ID"):
        GroupAdmin(Options.parse(given))


def test_a_broker_that_refuses_the_signature_ends_the_query(given, key, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(AuthenticationError, match=r"does not take the token \(AWS_MSK_IAM\): .*Access denied"):
        GroupAdmin(Options.parse(given))


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.orders.abc123.c2.kafka.us-east-2.amazonaws.com", "us-east-2"),
        ("boot-xyz.c1.kafka-serverless.ap-south-1.amazonaws.com", "ap-south-1"),
        ("b-2.orders.abc.c3.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("broker.example", REGION),
    ],
)
def test_the_region_is_in_a_brokers_name(host, region):
    assert Keys(AwsCredentials()).region_of(host) == region


def test_a_region_that_nobody_names_is_asked_for(monkeypatch):
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(AuthenticationError, match="the AWS region of broker.example is not known: set AWS_REGION"):
        Keys(AwsCredentials()).region_of("broker.example")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "AWS_MSK_IAM needs kafka.security.protocol SASL_SSL"),
        ({"kafka.sasl.jaas.config": f'{MODULE} required awsDebugCreds="true";'}, "awsDebugCreds, which would have no"),
        ({"kafka.sasl.jaas.config": f'{MODULE} required awsStsRegion="x";'}, "no effect without awsRoleArn"),
        ({"kafka.sasl.jaas.config": f'{MODULE}s required awsStsRegion="x";'}, f"needs {MODULE}"),
        ({"kafka.sasl.client.callback.handler.class": "my.Own"}, "is a Java class, which cannot run here"),
        ({"kafka.sasl.oauthbearer.scope": "x"}, "is for OAUTHBEARER, and kafka.sasl.mechanism is AWS_MSK_IAM"),
    ],
)
def test_settings_that_cannot_work_are_refused(given, more, message):
    settings = given | more
    if "PLAINTEXT" in settings["kafka.security.protocol"]:
        del settings["kafka.ssl.truststore.location"]
    with pytest.raises(OptionError, match=message):
        Options.parse(settings)


def test_a_missing_botocore_is_named(given, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "botocore" else found(name))
    with pytest.raises(OptionError, match="needs the package botocore: install it with pip on the driver and exec"):
        Options.parse(given)
