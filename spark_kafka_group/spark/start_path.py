"""What `groupkafka.pth` runs as a Python process of Spark's starts: it takes Spark's zips off the path.

Spark puts pyspark.zip before everything else. It holds no bytecode, so each process compiles what it imports of
pyspark. Where pip installed Spark, the same modules lie beside the zip, compiled. This file is installed a second time,
on its own, so that it runs before a package is imported.
"""

import os
import sys
from importlib.machinery import PathFinder


def without_zips(path: list[str]) -> list[str]:
    """`path` without the zips of an installed pyspark, if Python finds this pyspark, and py4j, behind them."""
    zips = [each for each in path if each.endswith(".zip") and os.path.basename(each).startswith(("pyspark", "py4j-"))]
    rest = [each for each in path if each not in zips]
    found = PathFinder.find_spec("pyspark", rest)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", rest) is None:
        return path
    beside = os.path.realpath(os.path.join(os.path.dirname(found.origin), "python", "lib"))
    return rest if {os.path.realpath(os.path.dirname(each)) for each in zips} == {beside} else path


if __name__ == "groupkafka_start_path":
    sys.path[:] = without_zips(sys.path)
