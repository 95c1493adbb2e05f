#!/usr/bin/env bash
# Debezium's PostgreSQL connector 3.6.1 (Maven Central, Java 17) in its embedded engine, and PostgreSQL 16.2 (of pgserver 0.1.4, PyPI). A
# table with NOT NULL columns and PostgreSQL's usual replica identity, by which the database's log has only the key of a deleted row.
# Guess: before, in the event of the delete, has the key, and nulls for what the connector cannot know, or only the key.
# Instead it has values that the row never had, wherever a column is NOT NULL: 0 for a customer and an amount, false, 1 January 1970, an
# empty text for a state that is no state and for JSON that is no JSON, or the column's default. Only columns that may be null are
# null. Whoever subtracts before.amount subtracts 0, and counts the delete for customer 0.
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
    sql("CREATE TYPE state AS ENUM ('new', 'paid')")
    columns = {
        "id": "int PRIMARY KEY", "customer": "int NOT NULL", "amount": "numeric(9,2) NOT NULL", "paid": "boolean NOT NULL",
        "day": "date NOT NULL", "at": "timestamptz NOT NULL", "state": "state NOT NULL", "data": "jsonb NOT NULL",
        "pieces": "int NOT NULL DEFAULT 1", "note": "text",
    }
    sql(f"CREATE TABLE orders ({', '.join(map(' '.join, columns.items()))})")
    row = "7, 12, 9.99, true, '2026-01-02', '2026-01-02 03:04:05+00', 'paid', '{}', 5, 'urgent'"
    sql(f"INSERT INTO orders VALUES ({row})")
    properties = {
        "name": "finding", "topic.prefix": "finding", "table.include.list": "public.orders", "plugin.name": "pgoutput",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "converter.schemas.enable": "false",
        "database.hostname": "127.0.0.1", "database.port": port, "database.user": "postgres", "database.dbname": "postgres",
        "database.password": "any", "decimal.handling.mode": "string",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    }
    pathlib.Path("settings").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    program = ["java", "-Xmx256m", "-Duser.timezone=UTC", "-cp", "lib/*", "Changes.java", "settings"]
    engine = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=open("log", "w"), text=True)
    row = json.loads(next(engine.stdout))["after"]
    print("the row    ", row)
    sql("DELETE FROM orders")
    deleted = json.loads(next(engine.stdout))["before"]
    print("its delete ", deleted)
finally:
    if engine:
        engine.kill()
        engine.wait()
    server.send_signal(signal.SIGINT)
    server.wait()
assert (row["customer"], row["amount"], row["state"], row["note"]) == (12, "9.99", "paid", "urgent")
assert deleted == {
    "id": 7, "customer": 0, "amount": "0.00", "paid": False, "day": 0, "at": "1970-01-01T00:00:00Z",
    "state": "", "data": "", "pieces": 1, "note": None,
}
PYTHON
env/bin/python run.py
