"""A reader process ends with its Spark session, when the session's directory is gone. Cleaners of temporary files end
neither."""

import os
import shutil
import signal
import subprocess
import sys
import zipfile

import pytest
from pyspark import SparkFiles

from spark_kafka_group.driver import process
from spark_kafka_group.testing import wait_until

READER = """
import signal, sys
from pathlib import Path
from pyspark import SparkFiles
from spark_kafka_group.driver import process

SparkFiles._root_directory, SparkFiles._is_running_on_worker = sys.argv[1], True
process.TOUCH_AGAIN_S = process.SESSION_CHECK_S = float(sys.argv[2])
process.prepare(stop=lambda: None)
signal.pause()
"""
FINALIZER = READER.replace("lambda: None", "Path(sys.argv[3]).touch").replace(
    "signal.pause()",
    """
import os

process.AGAIN_AFTER_S = 0.05

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))

Finalized()
print("goes on", flush=True)
while True:
    signal.pause()
""",
)
LONG_AGO = 1_000_000_000


@pytest.fixture
def reader_of():
    """Starts a process that watches the session's directory."""
    started = []

    def start(directory, touch_again_s="0.05"):
        directory.mkdir()
        started.append(subprocess.Popen([sys.executable, "-c", READER, directory, touch_again_s]))
        return started[-1]

    yield start
    for reader in started:
        reader.kill()
        reader.wait()


def test_the_directory_of_a_session_looks_used_as_long_as_a_reader_lives_and_without_it_the_reader_ends(
    tmp_path, reader_of
):
    reader = reader_of(tmp_path / "userFiles")
    directory = tmp_path / "userFiles"
    folder = directory / ".groupkafka" / "group"
    folder.mkdir(parents=True)
    (folder / "reader.json").touch()
    for _ in range(2):
        for path in (folder / "reader.json", folder, folder.parent, directory):
            os.utime(path, (LONG_AGO, LONG_AGO))
            wait_until(lambda path=path: path.stat().st_mtime > LONG_AGO, within=60)
    (folder / "reader.json").unlink()
    folder.rmdir()
    folder.parent.rmdir()
    directory.rmdir()
    assert reader.wait(60) == 128 + signal.SIGTERM


def test_a_reader_ends_when_its_directory_goes_while_it_is_touched(tmp_path, reader_of):
    directory = tmp_path / "userFiles"
    reader = reader_of(directory, touch_again_s="0")
    last = directory / ".groupkafka" / "199"
    for number in range(200):
        last.with_name(str(number)).mkdir(parents=True)
    os.utime(last, (LONG_AGO, LONG_AGO))
    wait_until(lambda: last.stat().st_mtime > LONG_AGO, within=60)
    shutil.rmtree(directory)
    assert reader.wait(60) == 128 + signal.SIGTERM


@pytest.mark.parametrize("named", ["", "streaming_job", "of-a-session"])
def test_all_processes_of_an_application_share_one_directory(tmp_path, monkeypatch, named):
    files = tmp_path / "userFiles-1"
    (files / "of-a-session").mkdir(parents=True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(files / named))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    assert process.shared_directory() == files


def test_a_signal_that_a_finalizer_has_swallowed_is_not_the_last_one_that_counts(tmp_path):
    ending = tmp_path / "ending"
    command = [sys.executable, "-c", FINALIZER, tmp_path, "0.05", ending]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == "goes on\n"

        def ends():
            if not ending.exists():  # afterwards Python gives the signal its default back, which kills
                reader.send_signal(signal.SIGTERM)
            return reader.poll() is not None

        try:
            wait_until(ends, within=60)
        finally:
            reader.kill()
        assert "Exception ignored " in reader.stderr.read()
        assert reader.wait() == 128 + signal.SIGTERM


IMPORTING = """
import sys
from pathlib import Path
from pyspark import SparkFiles
from spark_kafka_group.driver import process

files = Path(sys.argv[1])
SparkFiles._root_directory, SparkFiles._is_running_on_worker = str(files / "of-the-query"), True
sys.path[1:1] = [str(files / "of-the-query"), str(files / "of-the-query" / "packed.zip")]
try:
    import loose
except ImportError:
    process.prepare(stop=lambda: None)
    import loose, packed
    print(loose.__file__, packed.__file__)
"""


def test_modules_in_the_parent_of_the_missing_directory_that_spark_names_can_be_imported(tmp_path, python):
    (tmp_path / "loose.py").touch()
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("packed.py", "")
    ran = python("-c", IMPORTING, tmp_path)
    assert ran.stdout.split() == [str(tmp_path / "loose.py"), str(tmp_path / "packed.zip" / "packed.py")]
