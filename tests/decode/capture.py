"""Captures logs of a real broker for test_captured.py. Run by hand, when Kafka's formats change::

    python tests/decode/capture.py DIRECTORY_OF_KAFKA_JARS

It needs Java 17 and the jars of org.apache.kafka:kafka_2.13 (Ivy or Maven retrieves them with their dependencies). It
starts a broker in a directory of its own, produces with Java's client and every codec, stops the broker and copies the
log segments, whose bytes are those of the records field of a FetchResponse, to captured/*.bin, beside captured.json
with what was produced.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent / "captured"
BROKER_STARTS_WITHIN_S = 60

PRODUCE = r"""
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Produce {
    static StringBuilder json = new StringBuilder();

    static String quoted(byte[] data) {
        return data == null ? "null" : "\"" + Base64.getEncoder().encodeToString(data) + "\"";
    }

    static byte[] utf8(String text) { return text.getBytes(StandardCharsets.UTF_8); }

    static KafkaProducer<byte[], byte[]> producer(String servers, String codec, String transactionalId) {
        Properties p = new Properties();
        p.put("bootstrap.servers", servers);
        p.put("compression.type", codec);
        p.put("linger.ms", "500");
        if (transactionalId != null) p.put("transactional.id", transactionalId);
        return new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static ProducerRecord<byte[], byte[]> record(String topic, int i) {
        byte[] key = i % 5 == 0 ? null : i % 5 == 1 ? new byte[0] : utf8("key-" + i);
        byte[] value = i % 7 == 0 ? null : i % 7 == 1 ? new byte[0] : utf8("value " + "x".repeat(i * 3) + " of " + i);
        ProducerRecord<byte[], byte[]> r = new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i * 1001, key, value);
        if (i % 3 == 0) {
            r.headers().add(new RecordHeader("trace", utf8("t" + i)));
            r.headers().add(new RecordHeader("trace", null));
            r.headers().add(new RecordHeader("Größe", new byte[] {0, (byte) 0xff}));
        }
        return r;
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, int from, int to) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = from; i < to; i++) {
            records.add(record(topic, i));
            sent.add(producer.send(records.get(records.size() - 1)));
        }
        producer.flush();
        for (int i = 0; i < records.size(); i++) {
            RecordMetadata m = sent.get(i).get();
            StringBuilder headers = new StringBuilder();
            records.get(i).headers().forEach(h -> headers.append(headers.length() > 0 ? "," : "")
                .append("[\"" + h.key() + "\"," + quoted(h.value()) + "]"));
            json.append(json.length() > 0 ? ",\n" : "").append("[\"" + topic + "\"," + m.offset() + "," + m.timestamp()
                + "," + quoted(records.get(i).key()) + "," + quoted(records.get(i).value()) + ",[" + headers + "]]");
        }
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        List<NewTopic> topics = new ArrayList<>();
        for (String name : List.of("none", "gzip", "snappy", "lz4", "zstd", "transactions", "append-time"))
            topics.add(new NewTopic(name, 1, (short) 1).configs(
                name.equals("append-time") ? Map.of("message.timestamp.type", "LogAppendTime") : Map.of()));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(topics).all().get();
        }
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
            try (var producer = producer(servers, codec, null)) {
                send(producer, codec, 0, 30);
                send(producer, codec, 30, 40);
            }
        try (var producer = producer(servers, "lz4", null)) {
            send(producer, "append-time", 0, 10);
        }
        try (var producer = producer(servers, "zstd", "capture")) {
            producer.initTransactions();
            for (int i = 0; i < 30; i += 10) {
                producer.beginTransaction();
                send(producer, "transactions", i, i + 10);
                if (i == 10) producer.abortTransaction(); else producer.commitTransaction();
            }
        }
        java.nio.file.Files.writeString(java.nio.file.Path.of(args[1]), "[" + json + "]\n");
    }
}
"""

SERVER = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={logs}
log.retention.ms=-1
log.roll.ms=9223372036854775807
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def capture(jars: str, work: Path) -> None:
    java = ["java", "-Xmx512m", "-cp", f"{jars}/*"]
    broker, controller = free_port(), free_port()
    config, logs, produced = work / "server.properties", work / "logs", work / "captured.json"
    config.write_text(SERVER.format(broker=broker, controller=controller, logs=logs))
    (work / "Produce.java").write_text(PRODUCE)
    storage = ["kafka.tools.StorageTool", "format", "-t", "Y2FwdHVyZS1jYXB0dXJlMQ", "-c", str(config)]
    subprocess.run([*java, *storage], check=True)
    with (work / "broker.log").open("w") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + BROKER_STARTS_WITHIN_S
        while time.monotonic() < deadline:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", broker)) == 0:
                    break
            time.sleep(0.2)
        subprocess.run([*java, str(work / "Produce.java"), f"127.0.0.1:{broker}", str(produced)], check=True)
    finally:
        process.terminate()
        process.wait()
    HERE.mkdir(exist_ok=True)
    for topic in {row[0] for row in json.loads(produced.read_text())}:
        shutil.copy(logs / f"{topic}-0" / "00000000000000000000.log", HERE / f"{topic}.bin")
    shutil.copy(produced, HERE / "captured.json")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        capture(sys.argv[1], Path(directory))
