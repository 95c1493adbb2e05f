"""conf/python-unzipped: Python for Spark's workers, which import the installed pyspark."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "conf/python-unzipped"
ZIPS = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip"]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ([*ZIPS, "/spark-core.jar", "/a folder", "/own.zip"], "/spark-core.jar:/a folder:/own.zip"),
        (ZIPS, ""),
        (["/own"], "/own"),
        ([], ""),
    ],
)  # fmt: skip
def test_only_sparks_zips_are_taken_from_the_path(given, left, tmp_path):
    shutil.copy(SCRIPT, tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1], sep='|')"
    ran = subprocess.run(
        [tmp_path / SCRIPT.name, "-c", code, "two words"],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": ":".join(given)},
    )  # fmt: skip
    assert ran.stdout.strip() == f"{left}|two words"
