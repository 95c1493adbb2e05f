"""--options-file of programs for spark-submit, which keeps passwords off command lines."""

import os
import threading

import pytest

from spark_kafka_group import submit
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
