"""`python -m spark_kafka_group.testing` where it can do nothing: one line that says what to change."""

import sys

import pytest

from spark_kafka_group.testing import download, produce
from spark_kafka_group.testing.__main__ import SOME_DOWN, main
from spark_kafka_group.testing.download import CACHE, VERSION, cache_directory, jars, once


@pytest.fixture
def no_cache(monkeypatch, tmp_path):
    """A home that cannot be written, also not by root; returns where the cache would be."""
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(CACHE, raising=False)
    return tmp_path / "home/.cache/spark-kafka-group"


def test_a_home_that_cannot_be_written_is_named_with_the_variable_for_another_place(no_cache, capsys):
    assert main(["start"]) == SOME_DOWN
    output = capsys.readouterr().err
    assert output.startswith(f"the folder {no_cache} cannot be written (Not a directory): name another one in ")
    assert output.count("\n") == 1
    assert CACHE in output


def test_a_home_that_cannot_be_written_is_named_where_a_program_starts_the_broker(no_cache):
    assert cache_directory() == no_cache
    with pytest.raises(RuntimeError, match=rf"kafka-{VERSION} cannot be written .* {CACHE}$"):
        jars("kafka_2.13")


def test_the_first_process_that_makes_something_says_what(tmp_path, capsys):
    def make(parts):
        (parts / "lib").mkdir()

    for _ in range(2):
        assert once(tmp_path / "made", make, "making it, once") == tmp_path / "made"
    assert capsys.readouterr().err == "making it, once\n"


@pytest.mark.parametrize("version", ["4.4", "2.7.2", "newest"])
def test_a_version_that_cannot_be_started_is_refused_with_a_version_that_can(version, capsys):
    with pytest.raises(SystemExit):
        main(["start", "--version", version])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith(f"argument --version: {version} is no version of Kafka from 2.8.0 on, such as {VERSION}")


def test_records_need_a_broker(tmp_path, capsys):
    assert main(["--state", str(tmp_path), "produce", "--topic", "orders"]) == SOME_DOWN
    assert capsys.readouterr().err == (
        "no broker runs here: start one with `python -m spark_kafka_group.testing start`, or name one with "
        "--bootstrap-servers\n"
    )


@pytest.mark.parametrize("port", ["-1", "0", "65534", "99999", "abc"])
def test_a_port_that_is_none_is_named(port, capsys):
    with pytest.raises(SystemExit):
        main(["start", "--port", port])
    assert capsys.readouterr().err.endswith(f"argument --port: {port!r} must be a whole number from 1 to 65533\n")


def test_a_file_of_settings_that_cannot_be_read_is_named(tmp_path, capsys):
    file = tmp_path / "none"
    assert main(["--state", str(tmp_path), "start", "--properties", str(file)]) == SOME_DOWN
    expected = f"--properties {file} cannot be read: No such file or directory. Name a file of settings\n"
    assert capsys.readouterr().err == expected


def test_records_that_no_broker_takes_are_an_error(tmp_path, capsys):
    arguments = ["produce", "--topic", "orders", "--bootstrap-server", "127.0.0.1:x"]
    assert main(["--state", str(tmp_path), *arguments]) == SOME_DOWN
    assert capsys.readouterr().err.startswith("127.0.0.1:x takes no records for topic orders: ")


def test_a_broker_that_does_not_answer_is_an_error_soon(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(produce, "REACHED_WITHIN_MS", 200)
    arguments = ["produce", "--topic", "orders", "--bootstrap-server", "127.0.0.1:1"]
    assert main(["--state", str(tmp_path), *arguments]) == SOME_DOWN
    assert capsys.readouterr().err == (
        "no broker answers at 127.0.0.1:1: name another one with --bootstrap-server, or start one: "
        "python -m spark_kafka_group.testing start\n"
    )


@pytest.mark.parametrize("number", ["-1", "x", "1.5", "12345678901"])
def test_a_number_of_records_that_is_none_is_named(number, capsys):
    with pytest.raises(SystemExit):
        main(["produce", "--topic", "orders", "--records", number])
    assert capsys.readouterr().err.endswith(f"argument --records: {number!r} must be a whole number from 0 on\n")


DOWNLOAD = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
(folder / "jar").write_bytes(bytes(3_000_000))
while not (folder.parent / "seen").exists():
    time.sleep(0.01)
print("done")
"""


def test_a_download_says_how_much_has_come(tmp_path, capsys, monkeypatch):
    said = []

    def noted(*words, **how):
        said.extend(words)
        if "3 MB" in str(words):
            (tmp_path / "seen").touch()

    monkeypatch.setattr(download, "print", noted, raising=False)
    monkeypatch.setattr(download, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(download, "SAID_EVERY_S", 0.0)
    command = [sys.executable, "-c", DOWNLOAD, str(tmp_path / "ivy")]
    assert download.watched(command, tmp_path / "ivy") == (0, "done\n")
    assert said[-1].startswith("  3 MB after ")
