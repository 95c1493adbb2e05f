"""setup.py: pure Python when asked for, and no silent fall-back when the compiler fails."""

import os
import subprocess
import sys
import zipfile

import pytest
from source_tree import copy_of_sources

pytest.importorskip("Cython")


def build(tmp_path, **environment):
    """Build a wheel from a copy of the sources; returns pip's result and the names in the wheel."""
    tree = copy_of_sources(tmp_path)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    told = subprocess.run(
        [*pip, "-w", str(tmp_path), str(tree)],
        capture_output=True, text=True, check=False, env=os.environ | environment,
    )  # fmt: skip
    wheels = list(tmp_path.glob("*.whl"))
    return told, zipfile.ZipFile(wheels[0]).namelist() if wheels else []


def test_without_the_extension_the_wheel_is_pure_python(tmp_path):
    told, names = build(tmp_path, SPARK_KAFKA_GROUP_NO_EXTENSION="1", CC="false")
    assert told.returncode == 0, told.stderr
    assert "spark_kafka_group/executor/decode/_decode_py.py" in names
    assert "pyspark_groupkafka/__init__.py" in names
    assert "spark_kafka_group/wire/ConsumerGroupDescribeResponse.json" in names
    assert not [name for name in names if name.endswith(".so")]


def test_a_compiler_that_fails_fails_the_build(tmp_path):
    told, names = build(tmp_path, CC="false")
    assert told.returncode != 0
    assert "false" in told.stderr
    assert names == []
