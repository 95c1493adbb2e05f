"""What programs for spark-submit share: --options-file, sockets to Python workers, and the end of their processes."""

import os
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.source_tree import ROOT

from spark_kafka_group import submit
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools.submit import LONGEST_FOLDER, SOCKETS, SOCKETS_FOLDER, _children, _end, sockets_to_workers
from spark_kafka_group.values import files

HUSH = "hush-7f3a"
ARGUMENTS = ["--bootstrap-servers", "a:1", "--group", "billing", "--topics", "orders"]


def options(*arguments, **more):
    return submit.options(submit.parser("A program.").parse_args([*ARGUMENTS, *map(str, arguments)]), **more)


@pytest.fixture
def file(tmp_path):
    """Makes a properties file."""

    def make(text):
        path = tmp_path / "client.properties"
        path.write_text(text)
        return path

    return make


def test_options_come_from_a_file_and_those_of_the_command_line_go_before(file):
    path = file(
        "# of the cluster\n"
        f'kafka.sasl.jaas.config=a.B required username="u" \\\n    password="{HUSH}\\\\x";\n'
        "kafka.security.protocol : SASL_SSL\n"
        "includeHeaders = true\nmaxTasks=3\n"
    )
    found = options("--options-file", path, "--option", "maxTasks=4", includeHeaders="false", recordsPerTask="9")
    assert found == {
        "kafka.bootstrap.servers": "a:1", "kafka.group.id": "billing", "subscribe": "orders",
        "kafka.sasl.jaas.config": f'a.B required username="u" password="{HUSH}\\x";',
        "kafka.security.protocol": "SASL_SSL", "includeHeaders": "true", "maxTasks": "4", "recordsPerTask": "9",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HUSH}\n", "client.properties:1: this line is not name=value"),
        (f"\n{HUSH}=\n", "client.properties:2: the setting of this line is not supported: remove it"),
        (
            "security.protocol=SSL\n",
            "client.properties:1: security.protocol is not supported in this file: write kafka.security.protocol",
        ),
        ("maxTask=3\n", "client.properties:1: maxTask is not supported"),
        ("\udcff", "it is not text in UTF-8"),
        (r"maxTasks=\ud83d", r"client.properties:1: a \\u escape there is a surrogate without its pair"),
        (r"maxTasks=\u12", r"client.properties:1: a \\u there is not followed by four hexadecimal digits"),
    ],
)
def test_a_file_that_is_not_as_it_has_to_be_ends_the_program_without_what_stands_there(tmp_path, text, message):
    path = tmp_path / "client.properties"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SystemExit, match=f"--options-file: .*{message}") as raised:
        options("--options-file", path)
    assert HUSH not in str(raised.value)


def test_a_file_that_is_not_there_is_said():
    with pytest.raises(SystemExit, match="--options-file: /none/there cannot be read: No such file"):
        options("--options-file", "/none/there")


def test_an_option_without_a_value_is_said_and_not_shown():
    with pytest.raises(SystemExit, match="^--option takes NAME=VALUE$"):
        options("--option", HUSH)


def test_a_file_is_read_as_java_reads_it(tmp_path):
    path = tmp_path / "client.properties"
    path.write_bytes(
        b"\xef\xbb\xbf! written by an editor of Windows\r\n"
        b"groupIdPrefix=a\x0bb\xc2\x85c\xe2\x80\xa8\\ud83d\\ude00\\u00fc \r"
        b"kafka.client.id\\\r\n\t = \xc2\xa0x\\\n  # no comment\n"
        b"maxTasks=1\nmaxTasks=2"
    )
    found = options("--options-file", path)
    assert found["groupIdPrefix"] == "a\x0bb\x85c\u2028\U0001f600\xfc "
    assert found["kafka.client.id"] == "\xa0x# no comment"
    assert found["maxTasks"] == "2"


def test_an_option_is_the_same_whatever_the_case_of_its_letters(file):
    path = file("MAXTASKS=3\nkafka.Group.Id=other\n")
    found = options("--options-file", path, "--option", "maxtasks=4", maxTasks="2")
    assert {name.lower(): value for name, value in found.items()}["maxtasks"] == "4"
    assert sorted(name.lower() for name in found) == [
        "kafka.bootstrap.servers", "kafka.group.id", "maxtasks", "subscribe",
    ]  # fmt: skip


def test_a_pipe_is_read_as_that_of_a_shell_for_a_command(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writing = threading.Thread(target=path.write_text, args=("maxTasks=7\n",))
    writing.start()
    assert options("--options-file", path)["maxTasks"] == "7"
    writing.join()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.touch(0) or os.truncate(path, 2**30), "it has more than 4194304 bytes"),
        (lambda path: path.symlink_to("/dev/zero"), "it is neither a file nor a pipe"),
        (os.mkfifo, "it is a pipe into which nothing was written for 0.1 s"),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path, monkeypatch, make, message):
    monkeypatch.setattr(files, "PIPE_S", 0.1)
    make(tmp_path / "file")
    with pytest.raises(SystemExit, match=f"--options-file: .* cannot be read: {message}"):
        options("--options-file", tmp_path / "file")


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


def test_the_processes_of_a_program_are_found_while_its_threads_end():
    """Before Spark's JVM starts, in programs that have threads of their own."""
    before, ended = _children(os.getpid()), threading.Event()

    def threads():
        while not ended.is_set():
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()

    with ThreadPoolExecutor() as at_once:
        for _ in range(4):
            at_once.submit(threads)
        try:
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert _children(os.getpid()) <= before
        finally:
            ended.set()


def test_a_process_is_killed_with_those_that_it_has_started():
    script = ["bash", "-c", "sleep 100 & echo $!; wait"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as started:
        grandchild = Path("/proc", started.stdout.readline().strip(), "stat")
        _end(started.pid)
        assert started.wait(timeout=10) == -9
    wait_until(
        lambda: not grandchild.exists() or grandchild.read_text().rpartition(")")[2].split()[0] in "ZX", within=10
    )
