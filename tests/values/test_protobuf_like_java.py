"""Java's library, which from_protobuf reads messages with, reads the same, by the rules of Spark's rows."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from protobuf_cases import case_of
from protobuf_decoding import decoder_of, rows_of

from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing.download import cache_directory, once, retrieve

VERSION = "4.31.1"
PROGRAM = Path(__file__).with_name("JavaMessages.java")
SEEDS = 150
OURS = "a time is too far away for its column"
"""Where Spark's time is another one."""


@pytest.fixture(scope="module")
def read_by_java(tmp_path_factory):
    """Gives the lines of the program for cases."""

    def make(parts: Path) -> None:
        retrieve("com.google.protobuf", "protobuf-java", VERSION, parts, "-notransitive")

    folder = once(cache_directory() / f"protobuf-java-{VERSION}", make, f"downloading protobuf-java {VERSION}, once")
    [jar] = folder.glob("protobuf-java-*.jar")
    files = tmp_path_factory.mktemp("java")

    def read(cases):
        with (files / "cases").open("wb") as file:
            file.write(struct.pack(">i", len(cases)))
            for case in cases:
                write(file, case.descriptors)
                write(file, case.message.encode())
                file.write(struct.pack(">i", len(case.values)))
                for value in case.values:
                    write(file, value)
        command = [java(), "-cp", str(jar), str(PROGRAM), str(files / "cases"), str(files / "rows")]
        subprocess.run(command, check=True, timeout=100)
        return iter((files / "rows").read_text().splitlines())

    return read


def write(file, data):
    file.write(struct.pack(">i", len(data)) + data)


@pytest.mark.parametrize("good", [True, False], ids=["sound", "damaged"])
def test_java_reads_the_same(read_by_java, good):
    rng = Random()
    seeds = [rng.randrange(1 << 32) for _ in range(SEEDS)]
    cases = [case_of(Random(seed), good=good) for seed in seeds]
    theirs = read_by_java(cases)
    for seed, case in zip(seeds, cases, strict=True):
        array, malformed = decoder_of(case, ProtobufOptions(), "c").decode(pa.array(case.values, pa.binary()))
        reasons = {found.row: found.reason for found in malformed}
        for row, found in enumerate(rows_of(array)):
            wanted = next(theirs)
            ours = "malformed" if row in reasons else shown(array.type, found)
            if "required" in reasons.get(row, "") and "Entry" in case.descriptors.decode("latin-1") and not good:
                continue  # Java does not look for fields in a message that an entry of a map lacks
            if not good and (wanted == "malformed" or reasons.get(row) == OURS or has_long_number(case.values[row])):
                continue  # Java looks into messages, too, that another of their oneof has replaced
            assert ours == wanted, f"seed {seed}, value {row}: {reasons.get(row)}"


def has_long_number(value):
    """Whether a number of ten bytes may have a tenth that Java does not look at, where there are bytes behind it."""
    return any(all(byte & 0x80 for byte in value[at : at + 9]) for at in range(len(value) - 9))


def shown(kind, value):
    """A value as the program writes it."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        return "{" + "".join(f"{field.name}:{shown(field.type, value[field.name])};" for field in kind) + "}"
    if pa.types.is_map(kind):
        entries = (f"{shown(kind.key_type, key)}={shown(kind.item_type, item)}" for key, item in value.items())
        return "{" + ", ".join(entries) + "}"
    if pa.types.is_list(kind):
        return "[" + ", ".join(shown(kind.value_type, item) for item in value) + "]"
    if pa.types.is_floating(kind) and value != value:
        return "nan"
    if pa.types.is_floating(kind):
        return "x" + struct.pack(">f" if kind == pa.float32() else ">d", value).hex()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return "x" + (value if isinstance(value, bytes) else value.encode()).hex()
    return str(value).lower() if isinstance(value, bool) else str(value)
