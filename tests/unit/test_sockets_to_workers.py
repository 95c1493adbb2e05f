"""Unix domain sockets to Spark's Python workers, as `submit.session` configures them."""

import socket
import tempfile
import uuid
from pathlib import Path

import pytest

from spark_kafka_group.tools.submit import LONGEST_FOLDER, SOCKETS, SOCKETS_FOLDER, sockets_to_workers

ROOT = Path(__file__).parents[2]
LONG = f"/{'x' * LONGEST_FOLDER}"


@pytest.mark.parametrize(
    ("configured", "temporary", "settings"),
    [
        ({}, "/tmp", {SOCKETS: "true"}),
        ({"spark.master": "local[2]"}, "/tmp", {SOCKETS: "true"}),
        ({SOCKETS: "false"}, "/tmp", {SOCKETS: "false"}),
        ({"spark.master": "yarn"}, "/tmp", {SOCKETS: "true", SOCKETS_FOLDER: "/tmp"}),
        ({}, LONG, {SOCKETS: "true", SOCKETS_FOLDER: "/tmp"}),
        ({"spark.master": "yarn", SOCKETS_FOLDER: "/run"}, "/tmp", {SOCKETS: "true", SOCKETS_FOLDER: "/run"}),
        ({SOCKETS_FOLDER: "/run"}, LONG, {SOCKETS: "true", SOCKETS_FOLDER: "/run"}),
    ],
)
def test_what_is_configured_stays_and_long_paths_are_avoided(configured, temporary, settings):
    assert sockets_to_workers(configured.get, temporary) == settings


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        (f"-Xss4m -Djava.io.tmpdir={LONG} -ea", "/tmp"),
        (f"-Djava.io.tmpdir='{LONG}'", "/tmp"),
        ("-Djava.io.tmpdir=/scratch -ea", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("setting", ["spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions"])
def test_long_paths_of_executors_alone_are_avoided(options, folder, setting):
    assert sockets_to_workers({setting: options}.get, "/tmp").get(SOCKETS_FOLDER) == folder
    assert sockets_to_workers({setting: options, SOCKETS_FOLDER: "/run"}.get, "/tmp")[SOCKETS_FOLDER] == "/run"


def test_the_longest_folder_has_room_for_a_socket():
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="x" * (LONGEST_FOLDER - len("/tmp/") - 8)) as folder:
        assert len(folder) == LONGEST_FOLDER
        assert sockets_to_workers({}.get, folder) == {SOCKETS: "true"}
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(f"{folder}/.{uuid.uuid4()}.sock")


def test_spark_defaults_have_a_short_path():
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    settings = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    assert (settings[SOCKETS], settings[SOCKETS_FOLDER]) == ("true", "/tmp")
