#!/usr/bin/env bash
# pyspark 4.3.0, Java 17. The project that `spark-pipelines init` makes, run twice as its last line says.
# Guess: the second run refreshes the two materialized views of the first one.
# Instead it fails with LOCATION_ALREADY_EXISTS: Spark's default catalog is in memory and ends with the first run, and the
# folders of its tables stay in spark-warehouse. With spark.sql.catalogImplementation=hive the second run succeeds.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile 'pyspark[pipelines]==4.3.0' 'pandas<3'
export PYSPARK_PYTHON=$folder/env/bin/python SPARK_LOCAL_IP=127.0.0.1
export SPARK_TESTING=1 # a free port for the pipeline's Spark Connect server
SPARK_HOME=$(env/bin/python -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')
export SPARK_HOME
env/bin/python -c 'import pyspark; print("pyspark", pyspark.__version__)'

run() { # the exit code of a run; its output is in a file
    local code=0
    (cd "$1" && timeout 300 "$folder/env/bin/spark-pipelines" run) > "$folder/$2" 2>&1 || code=$?
    echo "$1, $2 run: exit code $code, $(grep -ohE 'Run is COMPLETED|\[[A-Z_]+\]' "$folder/$2" | sort -u | tr '\n' ' ')"
    return $code
}

env/bin/spark-pipelines init --name forgetful > /dev/null 2>&1
run forgetful first
if run forgetful second; then
    echo "the behaviour has changed: the second run succeeds"
    exit 1
fi
grep -q LOCATION_ALREADY_EXISTS second

env/bin/spark-pipelines init --name lasting > /dev/null 2>&1
printf 'configuration:\n  spark.sql.catalogImplementation: hive\n' >> lasting/spark-pipeline.yml
run lasting first
run lasting second
echo "as described: the default catalog forgets the tables between two runs, and their folders are in the way"
