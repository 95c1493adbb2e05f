#!/usr/bin/env bash
# Debezium's PostgreSQL connector 3.6.1 (Maven Central, Java 17) in its embedded engine, and PostgreSQL 16.2 (of pgserver 0.1.4, PyPI).
# One transaction inserts the key 7. A second one inserts 7 as well, and waits for the first, which deletes 7 and commits.
# Guess: source.lsn, the position in the database's log, grows from one change of a key to its next, so that the change with the
# greatest lsn is the key's last: that is how copies of a table order changes that come twice, or out of order.
# Instead the last change, the second insert, has a smaller lsn than the delete before it: PostgreSQL has written the row to its log
# before it waits for the key. Whoever goes by the lsn deletes a row that the table has. source.sequence, which has the position of the
# last commit first, tells the order.
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


engine = None
try:
    while subprocess.run([*ask, "-c", "SELECT 1"], capture_output=True).returncode and server.poll() is None:
        time.sleep(0.1)
    sql("CREATE TABLE orders (id int PRIMARY KEY, note text)")
    sql("INSERT INTO orders VALUES (1, 'for the snapshot')")
    properties = {
        "name": "finding", "topic.prefix": "finding", "table.include.list": "public.orders", "plugin.name": "pgoutput",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "converter.schemas.enable": "false",
        "database.hostname": "127.0.0.1", "database.port": port, "database.user": "postgres", "database.dbname": "postgres",
        "database.password": "any", "tombstones.on.delete": "false",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    }
    pathlib.Path("settings").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    program = ["java", "-Xmx256m", "-Duser.timezone=UTC", "-cp", "lib/*", "Changes.java", "settings"]
    engine = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=open("log", "w"), text=True)
    assert json.loads(next(engine.stdout))["op"] == "r"
    first = subprocess.Popen([*ask, "-f", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first.stdin.write("BEGIN; INSERT INTO orders VALUES (7, 'of the first') RETURNING id;\n")
    first.stdin.flush()
    assert first.stdout.readline() == "7\n"
    second = subprocess.Popen([*ask, "-c", "INSERT INTO orders VALUES (7, 'of the second')"])
    while sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != "1\n":
        time.sleep(0.1)
    first.communicate("DELETE FROM orders WHERE id = 7; COMMIT;\n")
    assert second.wait() == 0
    changes = [json.loads(next(engine.stdout)) for _ in range(3)]
    table = sql("SELECT note FROM orders WHERE id = 7").strip()
finally:
    if engine:
        engine.kill()
        engine.wait()
    server.send_signal(signal.SIGINT)
    server.wait()
for change in changes:
    print(change["op"], "lsn", change["source"]["lsn"], "sequence", change["source"]["sequence"])
print("in the table:", table)
assert [change["op"] for change in changes] == ["c", "d", "c"] and table == "of the second"
assert max(changes, key=lambda change: change["source"]["lsn"])["op"] == "d"
sequences = [json.loads(change["source"]["sequence"]) for change in changes]
positions = [(int(committed or lsn), int(lsn)) for committed, lsn in sequences]
assert positions == sorted(positions)
PYTHON
env/bin/python run.py
