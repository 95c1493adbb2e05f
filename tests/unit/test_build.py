"""setup.py: pure Python when asked for, and no silent fall-back when the compiler fails."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("Cython")
ROOT = Path(__file__).parents[2]


def build(tmp_path, **environment):
    """Build a wheel from a copy of the sources; returns pip's result and the names in the wheel."""
    tree = tmp_path / "tree"
    skipped = shutil.ignore_patterns("*.so", "_decode_c.c", "__pycache__")
    for package in ("spark_kafka_group", "pyspark_groupkafka"):
        shutil.copytree(ROOT / package, tree / package, ignore=skipped)
    for file in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tree)
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
