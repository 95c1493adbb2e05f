"""No secret is to be seen: not in plans, the UI, the event log, the checkpoint, logs at DEBUG, or errors."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from secured import PASSWORD, PLAIN, UNSECURED, add_user, in_properties, jaas, options, scram, works
from support.certificates import KEY_PASSWORD, STORE_PASSWORD

from spark_kafka_group.tools.submit import SECRET

ROOT = Path(__file__).parents[2]
HUSH = "hush-7f3a"

LOGGING = """\
[loggers]
keys=root
[handlers]
keys=stderr
[formatters]
keys=
[logger_root]
level=DEBUG
handlers=stderr
[handler_stderr]
class=StreamHandler
args=(sys.stderr,)
"""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM", "OAUTHBEARER"])
def test_kafka_pythons_log_at_debug_has_no_credentials(kafka, records, group, caplog, mechanism):
    caplog.set_level(logging.DEBUG)
    works(
        options(
            kafka, "SASL", records, group, **{"PLAIN": PLAIN, "SCRAM": scram(), "OAUTHBEARER": UNSECURED}[mechanism]
        ),
        group,
    )
    assert "SaslAuthenticateRequest(hidden)" in caplog.text
    for secret in (PASSWORD, repr(PASSWORD.encode())[2:-1], "Bearer", ",p="):
        assert secret not in caplog.text


@pytest.mark.soak
def test_nothing_that_spark_shows_or_keeps_has_a_secret(kafka, records, group, authority, tmp_path):
    user = f"user-{group}"
    add_user(kafka, user, HUSH)
    trust = {"ssl_truststore_location": authority.truststore("PKCS12"), "ssl_truststore_password": STORE_PASSWORD}
    key = Path(authority.encrypted("client")).read_text()
    key, chain = key[: key.index("-----BEGIN CERT")], key[key.index("-----BEGIN CERT") :]
    mutual = {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": chain, "ssl_key_password": KEY_PASSWORD}
    stream = options(kafka, "SASL_SSL", records, group, **trust, **mutual, **scram(user, HUSH))
    batch = options(kafka, "MTLS", records, **trust, **mutual)
    json_values = {"valueFormat": "json", "valueSchema": "a INT", "valueFraming": "none", "onMalformedValue": "null"}
    stream |= json_values | {"schema.registry.url": "http://localhost:1"}
    stream["schema.registry.basic.auth.user.info"] = f"me:{HUSH}"
    batch |= json_values | {"schema.registry.url": f"http://me:{HUSH}@localhost:1"}
    wrong = [
        stream | {"schema.registry.bearer.auth.token": HUSH},
        batch | {"schema.registry.bearer.auth.token": f"{HUSH}\nmore"},
        stream | {"kafka.sasl.jaas.config": stream["kafka.sasl.jaas.config"].rstrip(";")},
        stream | {"kafka.sasl.jaas.config": jaas("plain", username="u", password=HUSH)},
        stream | {"kafka.ssl.truststore.password": HUSH},
        batch | {"kafka.ssl.key.password": HUSH},
        batch | {"kafka.ssl.keystore.key": key.replace("M", "N")},
        stream | {"kafka.sasl.jaas.confg": HUSH, "kafka.sasl.oauthbearer.token.endpoint.url": f"ftp://{HUSH}"},
    ]
    for group_user in (user, "client"):
        allow(kafka, group_user, records, group)
    given, out = tmp_path / "given", tmp_path / "out"
    out.mkdir()
    given.write_text(json.dumps({"stream": stream, "batch": batch, "wrong": wrong, "redaction": SECRET}))
    (tmp_path / "logging.ini").write_text(LOGGING)
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_KAFKA_GROUP_LOGGING": str(tmp_path / "logging.ini"),
    }
    program = Path(__file__).parent / "hushed.py"
    with (out / "stdout").open("w") as stdout, (out / "stderr").open("w") as stderr:
        code = subprocess.run(
            [sys.executable, str(program), str(given), str(out)], stdout=stdout, stderr=stderr, env=environment,
            cwd=tmp_path, timeout=280, check=False,
        ).returncode  # fmt: skip
    output = (out / "stderr").read_text()
    assert code == 0, output[-3000:]
    assert "rows: 30 30" in (out / "stdout").read_text()
    assert "SaslAuthenticateRequest(hidden)" in output, "the reader process does log at DEBUG"
    files = [path for path in out.rglob("*") if path.is_file()]
    assert {"events", "checkpoint"} <= {path.relative_to(out).parts[0] for path in files}
    assert "groupkafka" in "".join(path.read_text() for path in files if "events" in path.parts)
    body = key.splitlines()[2]
    for secret in (HUSH, STORE_PASSWORD, KEY_PASSWORD, body):
        seen = [str(path.relative_to(out)) for path in files if secret.encode() in path.read_bytes()]
        assert seen == [], f"{secret} is in {seen}"


@pytest.mark.soak
def test_a_job_that_reads_its_options_from_a_file_shows_no_password(kafka, records, group, tmp_path):
    user = f"user-{group}"
    add_user(kafka, user, HUSH)
    allow(kafka, user, records, group)
    given = options(kafka, "SASL", records, **scram(user, HUSH))
    file, out = tmp_path / "billing.properties", tmp_path / "out"
    file.write_text("".join(f"{name}={in_properties(given[name])}\n" for name in given if name.startswith("kafka.s")))
    (out / "events").mkdir(parents=True)
    conf = {
        "spark.eventLog.compress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (out / "events").as_uri(),
    }
    ran = subprocess.run(
        [
            Path(sys.executable).with_name("spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false",
            *(part for pair in conf.items() for part in ("--conf", "=".join(pair))), ROOT / "jobs/drain.py",
            "--bootstrap-servers", kafka.servers_of("SASL"), "--group", group, "--topics", records,
            "--output", out / "rows", "--options-file", file,
        ],
        capture_output=True, text=True, env=os.environ | {"PYSPARK_PYTHON": sys.executable}, cwd=ROOT, timeout=240,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "30 records in" in ran.stdout
    events = b"".join(path.read_bytes() for path in (out / "events").rglob("*") if path.is_file())
    assert str(file).encode() in events, "the command line is there"
    assert HUSH.encode() not in events
    assert HUSH not in ran.stdout + ran.stderr


def allow(kafka, user, topic, group):
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    for kind, resource in ((ResourceType.TOPIC, topic), (ResourceType.GROUP, group)):
        pattern = ResourcePattern(kind, resource)
        kafka.admin.create_acls([ACL(f"User:{user}", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)])
