"""What programs for spark-submit read: --options-file, so that no password is on a command line."""

import pytest

from spark_kafka_group import submit

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
    ("text", "told"),
    [
        (f"{HUSH}\n", "client.properties:1: this line is not name=value"),
        (f"\n{HUSH}=\n", "client.properties:2: what this line sets is not supported: remove it"),
        ("security.protocol=SSL\n", "client.properties:1: security.protocol is not supported"),
        ("maxTask=3\n", "client.properties:1: maxTask is not supported"),
        ("\udcff", "it is no text in UTF-8"),
    ],
)
def test_a_file_that_is_not_as_it_has_to_be_ends_the_program_without_what_stands_there(tmp_path, text, told):
    path = tmp_path / "client.properties"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SystemExit, match=f"--options-file: .*{told}") as raised:
        options("--options-file", path)
    assert HUSH not in str(raised.value)


def test_a_file_that_is_not_there_is_said():
    with pytest.raises(SystemExit, match="--options-file: /none/there cannot be read: No such file"):
        options("--options-file", "/none/there")


def test_an_option_without_a_value_is_said_and_not_shown():
    with pytest.raises(SystemExit, match="^--option takes NAME=VALUE$"):
        options("--option", HUSH)
