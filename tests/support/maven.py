"""Artifacts of Maven Central that have a classifier, by the Ivy that pyspark ships."""

from __future__ import annotations

from pathlib import Path

import pyspark

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing.download import watched

IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="groupkafka" module="tests"/>
  <dependencies>
    <dependency org="{organisation}" name="{module}" rev="{version}" transitive="false">
      <artifact name="{module}" type="{kind}" ext="{kind}" m:classifier="{classifier}"/>
    </dependency>
  </dependencies>
</ivy-module>"""


def artifact(organisation: str, module: str, version: str, classifier: str, parts: Path, kind: str = "jar") -> Path:
    """Download an artifact into the folder `parts`. Raises RuntimeError with the end of Ivy's output."""
    text = IVY.format(organisation=organisation, module=module, version=version, classifier=classifier, kind=kind)
    (parts / "ivy.xml").write_text(text)
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [java(), "-jar", str(ivy), "-ivy", str(parts / "ivy.xml"), "-cache", str(parts / "ivy"),
               "-retrieve", str(parts / "[artifact].[ext]")]  # fmt: skip
    code, said = watched(command, parts / "ivy")
    found = parts / f"{module}.{kind}"
    if code or not found.exists():
        raise RuntimeError(f"downloading {module} {version} failed:\n{said[-2000:]}")
    return found
