#!/usr/bin/env bash
# Debezium's PostgreSQL connector 3.6.1 (Maven Central, Java 17) in its embedded engine, which writes with Kafka Connect's JsonConverter,
# and PostgreSQL 16.2 (of pgserver 0.1.4, PyPI). A table has arrays, of one and of two dimensions, and a numeric column with a default.
# Guess: a value that the connector has no type for is left out, or raises an error.
# Instead texts and UUIDs of a two-dimensional array become names of Java objects, and its numbers and booleans become nulls. An array of
# numerics that has a NaN is null, with its other numbers, though an array of reals keeps it; so is each array of bits. And NaN in a
# numeric column is the column's default: 0 for a measurement that is missing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
chmod 755 .
python3 -m venv env
env/bin/pip install -q --no-compile pgserver==0.1.4
curl -sfO https://repo1.maven.org/maven2/org/apache/ivy/ivy/2.5.3/ivy-2.5.3.jar
cat > ivy.xml <<'XML'
<ivy-module version="2.0">
  <info organisation="finding" module="finding"/>
  <dependencies>
    <dependency org="io.debezium" name="debezium-embedded" rev="3.6.1.Final" conf="default->runtime,master"/>
    <dependency org="io.debezium" name="debezium-connector-postgres" rev="3.6.1.Final" conf="default->runtime,master"/>
  </dependencies>
</ivy-module>
XML
java -jar ivy-2.5.3.jar -ivy ivy.xml -cache ivy -retrieve 'lib/[artifact]-[revision].[ext]' > ivy.log
cat > Changes.java <<'JAVA'
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;

public class Changes {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileReader(arguments[0]));
        DebeziumEngine.create(Json.class).using(settings).notifying(event -> System.out.println(event.value())).build().run();
    }
}
JAVA
cat > run.py <<'PYTHON'
import base64, json, os, pathlib, re, shutil, signal, socket, subprocess, time
from importlib.util import find_spec

programs = pathlib.Path(find_spec("pgserver").submodule_search_locations[0], "pginstall", "bin")
owner = "nobody" if os.getuid() == 0 else None  # PostgreSQL does not run as root
data = pathlib.Path("data").absolute()
data.mkdir()
if owner:
    shutil.chown(data, owner)
with socket.create_server(("127.0.0.1", 0)) as listening:
    port = listening.getsockname()[1]
initdb = [programs / "initdb", "-D", data / "db", "-A", "trust", "-U", "postgres", "--no-sync"]
subprocess.run(initdb, check=True, user=owner, cwd=data, stdout=subprocess.DEVNULL)
settings = ["-c", "wal_level=logical", "-c", "fsync=off"]
server = [programs / "postgres", "-D", data / "db", "-p", str(port), "-k", data, *settings]
server = subprocess.Popen(server, user=owner, cwd=data, stderr=open("server.log", "w"))
ask = [programs / "psql", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-qAt"]


def sql(text):
    return subprocess.run([*ask, "-c", text], check=True, capture_output=True, text=True).stdout


engine = None
try:
    while subprocess.run([*ask, "-c", "SELECT 1"], capture_output=True).returncode and server.poll() is None:
        time.sleep(0.1)
    columns = {
        "seats text[]": "{{A1,A2},{B1,B2}}", "ids uuid[]": "{{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}}", "grid int[]": "{{1,2},{3,4}}",
        "flags boolean[]": "{{t,f}}", "numbers numeric[]": "{1.5,NaN}", "reals real[]": "{1.5,NaN}", "bits bit(2)[]": "{10}",
        "measured numeric(9,2) DEFAULT 0": "NaN",
    }
    sql(f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(columns)})")
    values = ", ".join(f"'{value}'" for value in columns.values())
    sql(f"INSERT INTO t VALUES (1, {values})")
    properties = {
        "name": "finding", "topic.prefix": "finding", "table.include.list": "public.t", "plugin.name": "pgoutput",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "converter.schemas.enable": "false",
        "database.hostname": "127.0.0.1", "database.port": port, "database.user": "postgres", "database.dbname": "postgres",
        "database.password": "any", "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    }
    pathlib.Path("settings").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    program = ["java", "-Xmx256m", "-Duser.timezone=UTC", "-cp", "lib/*", "Changes.java", "settings"]
    engine = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=open("log", "w"), text=True)
    found = json.loads(next(engine.stdout))["after"]
finally:
    if engine:
        engine.kill()
        engine.wait()
    server.send_signal(signal.SIGINT)
    server.wait()
print(found)
assert all(re.fullmatch(r"\[Ljava\.lang\.String;@[0-9a-f]+", seat) for seat in found["seats"]) and len(found["seats"]) == 2
assert re.fullmatch(r"\[Ljava\.util\.UUID;@[0-9a-f]+", *found["ids"])
assert (found["grid"], found["flags"]) == ([None, None], [None])
assert (found["numbers"], found["reals"], found["bits"]) == (None, [1.5, "NaN"], None)
assert base64.b64decode(found["measured"]) == b"\0"
PYTHON
env/bin/python run.py
