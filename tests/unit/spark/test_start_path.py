"""Spark's zips on the path of its Python processes."""

from pathlib import Path

import pyspark

from spark_kafka_group.spark.start_path import without_zips

HOME = Path(pyspark.__file__).parent
ZIPS = [str(HOME / "python/lib/pyspark.zip"), str(HOME / "python/lib/py4j-0.10.9.9-src.zip")]
INSTALLED = str(HOME.parent)


def test_zips_of_the_installed_pyspark_are_taken_from_the_path():
    path = ["/first", *ZIPS, "/own.zip", "/spark-core.jar", INSTALLED]
    assert without_zips(path) == ["/first", "/own.zip", "/spark-core.jar", INSTALLED]


def test_zips_that_are_reached_by_a_link_are_those_of_the_installed_pyspark(tmp_path):
    (tmp_path / "spark").symlink_to(HOME)
    linked = [each.replace(str(HOME), str(tmp_path / "spark")) for each in ZIPS]
    assert without_zips([*linked, INSTALLED]) == [INSTALLED]


def test_zips_of_another_spark_stay():
    path = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip", INSTALLED]
    assert without_zips(path) == path


def test_zips_stay_where_another_pyspark_comes_before_the_installed_one(tmp_path):
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").touch()
    path = [*ZIPS, str(tmp_path), INSTALLED]
    assert without_zips(path) == path


def test_zips_stay_where_pyspark_or_py4j_is_found_nowhere_else(tmp_path):
    (tmp_path / "pyspark").symlink_to(HOME)
    for rest in ([], ["/nowhere"], [str(tmp_path)]):
        assert without_zips([*ZIPS, *rest]) == [*ZIPS, *rest]
