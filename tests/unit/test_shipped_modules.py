"""Modules that a user ships with --py-files can be imported in the process of a stream's reader."""

import zipfile

READER = """
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
    ran = python("-c", READER, tmp_path)
    assert ran.stdout.split() == [str(tmp_path / "loose.py"), str(tmp_path / "packed.zip" / "packed.py")]
