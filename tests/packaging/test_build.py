"""setup.py: pure Python when asked for, and no silent fall-back when the compiler fails."""

import os
import subprocess
import sys
import zipfile

import pytest
from support.source_tree import ROOT, copy_of_sources

pytest.importorskip("Cython")


def build(tmp_path, **environment):
    """Build a wheel from a copy of the sources; returns pip's result and the names in the wheel."""
    tree = copy_of_sources(tmp_path)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "-w", str(tmp_path), str(tree)],
        capture_output=True, text=True, check=False, env=os.environ | environment,
    )  # fmt: skip
    wheels = list(tmp_path.glob("*.whl"))
    return done, zipfile.ZipFile(wheels[0]).namelist() if wheels else []


@pytest.fixture(scope="module")
def pure_python(tmp_path_factory):
    """A wheel without the extension: the archive and its names."""
    directory = tmp_path_factory.mktemp("pure")
    result, names = build(directory, SPARK_KAFKA_GROUP_NO_EXTENSION="1", CC="false")
    assert result.returncode == 0, result.stderr
    with zipfile.ZipFile(*directory.glob("*.whl")) as archive:
        yield archive, names


def test_without_the_extension_the_wheel_is_pure_python(pure_python):
    _, names = pure_python
    assert "spark_kafka_group/executor/decode/_decode_py.py" in names
    assert "pyspark_groupkafka/__init__.py" in names
    assert "spark_kafka_group/wire/group/ConsumerGroupDescribeResponse.json" in names
    assert {"groupkafka.pth", "groupkafka_start_path.py"} <= set(names)
    assert not [name for name in names if name.endswith(".so")]


def test_the_wheel_has_the_programs_the_settings_and_the_console_command(pure_python):
    archive, names = pure_python
    for folder in ("jobs", "conf"):
        files = [file for file in (ROOT / folder).rglob("*") if file.is_file() and file.suffix != ".pyc"]
        inside = {f"spark_kafka_group/{file.relative_to(ROOT)}" for file in files}
        assert inside
        assert inside <= set(names)
    assert archive.getinfo("spark_kafka_group/conf/python-unzipped").external_attr >> 16 & 0o111
    (scripts,) = [name for name in names if name.endswith("entry_points.txt")]
    assert "groupkafka = spark_kafka_group.__main__:main" in archive.read(scripts).decode()


@pytest.mark.parametrize("compiler", ["false", "no-such-compiler"])
@pytest.mark.soak
def test_a_compiler_that_fails_fails_the_build_and_its_last_line_has_the_ways_out(tmp_path, compiler):
    result, names = build(tmp_path, CC=compiler)
    assert result.returncode != 0
    assert compiler in result.stderr
    assert names == []
    *_, last = result.stderr.partition("[end of output]")[0].strip().splitlines()
    assert "install a C compiler" in last
    assert "set the environment variable SPARK_KAFKA_GROUP_NO_EXTENSION=1" in last
