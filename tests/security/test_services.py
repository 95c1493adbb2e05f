"""docs/security.md's files for services and operators, as they are but for addresses, names and secrets."""

import re
from pathlib import Path

import pytest
from secured import EVENT_HUBS_USER, PASSWORD, quoted, works
from support.certificates import STORE_PASSWORD

from spark_kafka_group.tools import submit

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
FILES = dict(
    re.findall(r"```properties\n# (\w+ ?\w*)(.*?)```", PAGE.partition("## Services and operators")[2], re.DOTALL)
)
SECRET = quoted(PASSWORD)[1:-1].replace("\\", "\\\\")  # in a login module, in a file of properties


def run(file, kafka, listener, records, group, tmp_path, **changes):
    """A query with the options of a file, in which texts are replaced."""
    text = FILES[file]
    for there, here in changes.items():
        assert there in text
        text = text.replace(there, here)
    path = tmp_path / "service.properties"
    path.write_text(f"#{text}")
    address = re.search(r"^kafka.bootstrap.servers=(.*)$", text, re.MULTILINE)[1]
    path.write_text(path.read_text().replace(address, kafka.servers_of(listener)))
    arguments = ["--options-file", str(path), "--group", group, "--topics", records, "--bootstrap-servers", "x:1"]
    given = submit.options(submit.parser("A query").parse_args(arguments))
    works(given | {"startingOffsets": "earliest"}, group)


def test_each_file_of_a_service_is_run():
    assert list(FILES) == ["Confluent Cloud", "Azure Event", "Strimzi"]


@pytest.fixture
def trusted(authority, monkeypatch):
    """The system's certificates are those of the broker's authority."""
    monkeypatch.setenv("SSL_CERT_FILE", authority.certificate)


@pytest.mark.usefixtures("trusted")
def test_confluent_cloud(kafka, records, group, tmp_path):
    names = {"API-KEY": "alice", "API-SECRET": SECRET}
    run("Confluent Cloud", kafka, "SASL_SSL", records, group, tmp_path, **names)


@pytest.mark.usefixtures("trusted")
def test_azure_event_hubs(kafka, records, group, tmp_path):
    assert EVENT_HUBS_USER in FILES["Azure Event"]
    password = re.search(r'password="(.*)"', FILES["Azure Event"])[1]
    run("Azure Event", kafka, "SASL_SSL", records, group, tmp_path, **{password: SECRET})


def test_strimzi(kafka, records, group, tmp_path, authority):
    secrets = {
        "/opt/secrets/ca.crt": authority.certificate,
        "/opt/secrets/user.p12": authority.path("client.p12"),
        "USER-PASSWORD": STORE_PASSWORD,
    }
    run("Strimzi", kafka, "MTLS", records, group, tmp_path, **secrets)
