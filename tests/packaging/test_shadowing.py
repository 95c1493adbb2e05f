"""A source tree as the working directory: Python takes it before the installed package, as in Spark's workers."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.source_tree import copy_of_sources

import spark_kafka_group

LOADED = """
from spark_kafka_group.executor import decode
print(decode.__file__)
print(decode.load("auto").__file__)
print(decode.load("auto").RecordBatchBuilder.__module__)
"""
ENCODER = "from spark_kafka_group.executor import encode; print(encode.load('auto').__file__)"


@pytest.fixture
def tree(tmp_path):
    """As a fresh clone is: nothing has been built there."""
    return copy_of_sources(tmp_path)


@pytest.fixture
def site_packages(tmp_path):
    """With the package as it is installed, its compiled decoder included."""
    package = Path(spark_kafka_group.__file__).parent
    shutil.copytree(package, tmp_path / "site" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "site"


@pytest.fixture
def nothing_else(tmp_path):
    """All that is installed but this package."""
    (tmp_path / "others").mkdir()
    for entry in Path(sysconfig.get_path("platlib")).iterdir():
        if not entry.name.startswith("spark_kafka_group"):
            (tmp_path / "others" / entry.name).symlink_to(entry)
    return tmp_path / "others"


def worker(tree, *path, program=LOADED):
    """Output and log lines of a Python whose working directory is the tree."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    ended = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    return ended.stdout.splitlines(), ended.stderr


def test_a_tree_without_a_decoder_takes_that_of_the_installed_package(tree, site_packages, nothing_else):
    (package, decoder, module), console = worker(tree, site_packages, nothing_else)
    assert package == str(tree / "spark_kafka_group/executor/decode/__init__.py")
    assert Path(decoder).parent == site_packages / "spark_kafka_group/executor/decode"
    assert module == "spark_kafka_group.executor.decode._decode_c"
    assert console == ""


def test_a_tree_without_an_encoder_takes_that_of_the_installed_package(tree, site_packages, nothing_else):
    (encoder,), console = worker(tree, site_packages, nothing_else, program=ENCODER)
    assert Path(encoder).parent == site_packages / "spark_kafka_group/executor/encode"
    assert Path(encoder).name.startswith("_encode_c")
    assert console == ""
    (encoder,), console = worker(tree, nothing_else, program=ENCODER)
    assert encoder == str(tree / "spark_kafka_group/executor/encode/_encode_py.py")
    assert "the compiled encoder was not built" in console


def test_a_tree_takes_no_decoder_of_another_version_and_says_so_on_the_console(tree, site_packages, nothing_else):
    with (site_packages / "spark_kafka_group/executor/decode/contract.py").open("a") as file:
        file.write("NEWER = True\n")
    (_, decoder, _), console = worker(tree, site_packages, nothing_else)
    assert decoder == str(tree / "spark_kafka_group/executor/decode/_decode_py.py")
    assert "decoded slowly in Python" in console
    assert (
        f"you are in a source tree, {tree}, which Python takes before the package installed in {site_packages}"
        in console
    )
    assert "start the job in another directory" in console


def test_a_tree_alone_says_on_the_console_how_the_decoder_is_built(tree, nothing_else):
    (_, decoder, _), console = worker(tree, nothing_else)
    assert decoder == str(tree / "spark_kafka_group/executor/decode/_decode_py.py")
    assert f"you are in a source tree, {tree}: run `python setup.py build_ext --inplace` there" in console


def test_the_compiled_decoder_by_name_is_an_error_that_says_so(tree, nothing_else):
    _, console = worker(tree, nothing_else, program="from spark_kafka_group.executor import decode; decode.load('c')")
    assert "OptionError: decoder=c: the compiled decoder was not built" in console
    assert f"a source tree, {tree}: run `python setup.py build_ext --inplace` there, or set decoder=auto" in console
