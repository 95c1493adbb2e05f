"""The commands without a broker: their names, what is installed with them, and arguments that are wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.source_tree import ROOT

import spark_kafka_group
from spark_kafka_group import submit
from spark_kafka_group.__main__ import main, parser
from spark_kafka_group.tools import last_line
from spark_kafka_group.tools.describe import MOST_NAMED, _no_such_group


def shown(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_the_programs_are_listed_with_their_purpose_and_the_files_of_settings(capsys):
    lines = shown(capsys, "jobs").splitlines()
    assert "stream-to-parquet    Stream Kafka topics into parquet as a member of a consumer group" in "\n".join(lines)
    assert lines[-1].startswith("Files of settings, for --path: ")
    assert lines[-1].endswith("spark-defaults.conf")


@pytest.mark.parametrize(
    "name",
    ["stream-to-parquet", "stream_to_parquet.py", "spark-defaults.conf", "python-unzipped", "groupkafka.rules.yml"],
)
def test_a_path_is_printed_alone_for_spark_submit(capsys, name):
    (path,) = shown(capsys, "jobs", "--path", name).splitlines()
    assert Path(path).is_file()
    assert Path(path).stem.replace("_", "-") == Path(name).stem.replace("_", "-")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["jobs", "drian"], "there is no drian: take one of demo, drain, kafka-to-kafka, process, "),
        (["jobs", "spark-defaults.conf"], "there is no spark-defaults.conf: take one of demo, "),
        (["jobs", "--path"], "--path needs a name: demo, "),
    ],
)
def test_a_program_that_is_not_there_is_an_error_that_names_those_that_are(capsys, arguments, problem):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"python -m spark_kafka_group jobs: {problem}")


@pytest.mark.parametrize("command", ["", "offsets", "describe", "top", "reset", "verify", "plot", "jobs"])
def test_help_fits_80_columns(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    shown = capsys.readouterr().out
    assert shown.startswith("usage:")
    assert [line for line in shown.splitlines() if len(line) > 80] == []


def test_help_of_a_program_needs_no_java(tmp_path):
    (tmp_path / "java").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "java").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "JAVA_HOME": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "spark_kafka_group", "jobs", "kafka-to-kafka", "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.partition(" ")[0]) == (0, "usage:"), done.stderr


def test_an_installed_command_names_itself(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/venv/bin/groupkafka"])
    assert main(["jobs", "drian"]) == 2
    assert capsys.readouterr().err.startswith("groupkafka jobs: ")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"groupkafka {spark_kafka_group.__version__}\n"


@pytest.mark.parametrize("spelling", ["--bootstrap-server", "--bootstrap-servers"])
def test_both_spellings_of_the_brokers_are_taken_everywhere(spelling):
    for command in (["describe"], ["offsets", "--group", "g"], ["reset", "--group", "g", "--to-latest"]):
        assert parser().parse_args([*command, spelling, "a:1"]).bootstrap_server == "a:1"
    arguments = [spelling, "a:1", "--group", "g", "--topics", "t"]
    assert submit.parser("A program.").parse_args(arguments).bootstrap_servers == "a:1"


@pytest.mark.parametrize("spelling", ["--bootstrap-server", "--bootstrap-servers"])
def test_an_error_names_the_argument_as_it_was_written(capsys, spelling):
    assert main(["describe", spelling, "localhost"]) == 1
    assert capsys.readouterr().err.startswith(
        f"python -m spark_kafka_group describe: {spelling} (localhost) must be host:port"
    )
    args = submit.parser("A program.").parse_args([spelling, "localhost", "--group", "g", "--topics", "t"])
    with pytest.raises(SystemExit, match=rf"^{spelling} \(localhost\) must be host:port"):
        submit.options(args)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("Correct kafka.bootstrap.servers, or start the broker", "Correct --bootstrap-server, or start the broker"),
        ("subscribe names ordres", "--topics names ordres"),
        ("take another kafka.group.id, or subscribe instead", "take another --group, or --topics instead"),
        ("a member does not subscribe to it", "a member does not subscribe to it"),
        ("one of subscribePattern, kafka.group.instance.id", "one of subscribePattern, kafka.group.instance.id"),
    ],
)
def test_an_error_in_a_program_names_the_arguments_of_the_program(monkeypatch, error, shown):
    monkeypatch.setattr(last_line, "_arguments", {})
    parsed = submit.parser("A program.")
    arguments = ["--bootstrap-server", "a:1", "--group", "g", "--topics", "t"]
    submit.options(parsed.parse_args(arguments))
    assert last_line.as_given(error) == shown
    submit.options(parsed.parse_args([*arguments, "--option", "SUBSCRIBE=b"]))
    assert last_line.as_given("subscribe names ordres") == "subscribe names ordres"


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (["billing", "sch"], "the nearest name is billing"),
        (["sch", "orders"], "the cluster has orders, sch"),
        (
            [f"g{n}" for n in range(MOST_NAMED + 1)],
            "the cluster has 11 others, and describe without --group shows them",
        ),
        ([], "the cluster has no groups"),
    ],
)
def test_a_group_that_is_not_there_has_a_near_name_or_none(groups, said):
    assert _no_such_group("biling", dict.fromkeys(groups, "classic")) == f"there is no group biling: {said}"


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "nan", "1e9"])
def test_the_time_between_two_looks_has_bounds(capsys, seconds):
    with pytest.raises(SystemExit):
        main(["describe", "--bootstrap-server", "a:1", f"--watch={seconds}"])
    assert f"'{seconds}' must be seconds, above 0 and up to 86400" in capsys.readouterr().err


def test_settings_for_spark_submit_name_no_file_of_a_directory():
    lines = (ROOT / "conf/spark-defaults.conf").read_text().splitlines()
    assert not [line for line in lines if not line.startswith("#") and "conf/" in line]


@pytest.mark.parametrize("given", [["--bootstrap-serverx", "a:1"], ["--bootstrap-serverx=a:1"]])
def test_a_misspelt_argument_is_named_with_the_nearest_one(capsys, given):
    with pytest.raises(SystemExit) as ended:
        main(["describe", *given, "--group", "billing"])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("error: --bootstrap-serverx is not known; the nearest is --bootstrap-server")
