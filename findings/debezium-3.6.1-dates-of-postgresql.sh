#!/usr/bin/env bash
# Debezium's PostgreSQL connector 3.6.1 (Maven Central, Java 17) in its embedded engine, and PostgreSQL 16.2 (of pgserver 0.1.4, PyPI).
# Contracts have the dates infinity, -infinity and 44 BC. The snapshot reads one, and an equal one is inserted after it.
# Guess: both have the same dates. infinity is after all dates, as a timestamp's is, whose number Debezium documents.
# Instead infinity is before all dates that people write, so every contract has ended, and the two rows differ: it is 1.7 million
# years before Christ in the snapshot, and 5.9 million in the change, where -infinity is a day later. 15 March 44 BC is 15 March of
# the year 44 in the snapshot, and right in the change. Timestamps are the same in both.
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
import json, os, pathlib, shutil, signal, socket, subprocess, time
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


def insert(number):
    sql(f"INSERT INTO contracts VALUES ({number}, 'infinity', '-infinity', '0044-03-15 BC', '0044-03-15 00:00 BC', 'infinity')")


engine = None
try:
    while subprocess.run([*ask, "-c", "SELECT 1"], capture_output=True).returncode and server.poll() is None:
        time.sleep(0.1)
    columns = "up date, down date, day date, at timestamp, up_at timestamp"
    sql(f"CREATE TABLE contracts (id int PRIMARY KEY, {columns})")
    insert(1)
    properties = {
        "name": "finding", "topic.prefix": "finding", "table.include.list": "public.contracts", "plugin.name": "pgoutput",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "converter.schemas.enable": "false",
        "database.hostname": "127.0.0.1", "database.port": port, "database.user": "postgres", "database.dbname": "postgres",
        "database.password": "any", "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    }
    pathlib.Path("settings").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    program = ["java", "-Xmx256m", "-Duser.timezone=UTC", "-cp", "lib/*", "Changes.java", "settings"]
    engine = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=open("log", "w"), text=True)
    found = {}
    for line in engine.stdout:
        event = json.loads(line)
        found[event["op"]] = {name: value for name, value in event["after"].items() if name != "id"}
        print({"r": "snapshot", "c": "change"}[event["op"]], found[event["op"]])
        if "c" in found:
            break
        insert(2)
finally:
    if engine:
        engine.kill()
        engine.wait()
    server.send_signal(signal.SIGINT)
    server.wait()
same = {"at": -63517824000000000, "up_at": 9223372036825200000}
assert found["r"] == {"up": -622191234, "down": -625821272, "day": -703383, **same}
assert found["c"] == {"up": -2147472692, "down": -2147472691, "day": -735160, **same}
PYTHON
env/bin/python run.py
