"""Unix domain sockets to Spark's Python workers, as `submit.session` configures them."""

from pathlib import Path

import pytest

from spark_kafka_group.tools.submit import SOCKETS, SOCKETS_FOLDER, sockets_to_workers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("configured", "settings"),
    [
        ({}, {SOCKETS: "true"}),
        ({"spark.master": "local[2]"}, {SOCKETS: "true"}),
        ({SOCKETS: "false"}, {SOCKETS: "false"}),
        ({"spark.master": "yarn"}, {SOCKETS: "true", SOCKETS_FOLDER: "/tmp"}),
        ({"spark.master": "yarn", SOCKETS_FOLDER: "/run/spark"}, {SOCKETS: "true", SOCKETS_FOLDER: "/run/spark"}),
    ],
)
def test_what_is_configured_stays_and_yarns_long_paths_are_avoided(configured, settings):
    assert sockets_to_workers(configured.get, "/tmp") == settings


@pytest.mark.parametrize(
    ("temporary", "options", "folder"),
    [
        ("/" + "t" * 60, "", None),
        ("/" + "t" * 61, "", "/tmp"),
        ("/tmp", f"-Xss4m -Djava.io.tmpdir=/{'t' * 61} -ea", "/tmp"),
        ("/tmp", f"-Djava.io.tmpdir='/{'t' * 61}'", "/tmp"),
        ("/tmp", "-Djava.io.tmpdir=/scratch -ea", None),
    ],
)
@pytest.mark.parametrize("setting", ["spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions"])
def test_a_long_folder_for_temporary_files_is_avoided(temporary, options, folder, setting):
    assert sockets_to_workers({setting: options}.get, temporary).get(SOCKETS_FOLDER) == folder
    of_the_user = {setting: options, SOCKETS_FOLDER: "/run/spark"}
    assert sockets_to_workers(of_the_user.get, temporary)[SOCKETS_FOLDER] == "/run/spark"


def test_spark_defaults_have_a_short_path_too():
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    settings = dict(line.split(None, 1) for line in lines if line and not line.startswith("#"))
    assert (settings[SOCKETS], settings[SOCKETS_FOLDER]) == ("true", "/tmp")
