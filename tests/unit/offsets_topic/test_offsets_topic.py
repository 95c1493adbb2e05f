"""Records of the offsets topic: bytes of Kafka's own classes, and malformed bytes."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.offsets_topic.consumer_group_records import (
    CurrentAssignment,
    GroupEpoch,
    GroupTopics,
    NewerGroupMember,
    NewerRecordRemoved,
    PatternTopics,
    TargetAssignment,
    TargetEpoch,
)
from spark_kafka_group.offsets_topic.decoding import (
    CommitEntry,
    GenerationEntry,
    GroupRemoved,
    MemberSubscription,
    OffsetRemoved,
    OtherRecord,
    Undecodable,
    assignment_of,
    coordinator_partition,
    decode,
    subscription_of,
)
from spark_kafka_group.testing import group_log
from spark_kafka_group.values.offsets import TopicPartition

# By the generated classes of Kafka 4.3.1 (MessageUtil.toVersionPrefixedByteBuffer), version by version; those of 4.4.0
# have the same schemas. Those of version 4 have tagged fields: a topic id, and tags that no version knows, one of them
# 200 bytes long.
OFFSET_VALUES = {
    0: "000000000000000000b4001d7b22726561646572223a2272222c2267656e65726174696f6e223a377d0000018bcfe5687b",
    1: "000100000000000000b4001d7b22726561646572223a2272222c2267656e65726174696f6e223a377d0000018bcfe568"
    "7b0000018bcfe6ee9f",
    2: "000200000000000000b4001d7b22726561646572223a2272222c2267656e65726174696f6e223a377d0000018bcfe5687b",
    3: "000300000000000000b400000005001d7b22726561646572223a2272222c2267656e65726174696f6e223a377d0000018bcfe5687b",
    4: "000400000000000000b4000000051e7b22726561646572223a2272222c2267656e65726174696f6e223a377d0000018b"
    "cfe5687b02001069b71d79f8218a39259a7a29aabb2db80903010203",
}
GROUP_VALUES = {
    0: "00000008636f6e73756d657200000007000572616e676500036d2d310000000200036d2d3100016300092f31302e302e"
    "302e310000afc80000001c00000000000200066f7264657273000772657475726e7300000001090000002f0000000000"
    "0200066f7264657273000000020000000000000003000772657475726e730000000100000001ffffffff00036d2d3200"
    "016400092f31302e302e302e32000027100000000000000000",
    1: "00010008636f6e73756d657200000007000572616e676500036d2d310000000200036d2d3100016300092f31302e302e"
    "302e31000493e00000afc80000003400010000000200066f7264657273000772657475726e7300000001090000000100"
    "066f72646572730000000200000000000000030000002f00010000000200066f72646572730000000200000000000000"
    "03000772657475726e730000000100000001ffffffff00036d2d3200016400092f31302e302e302e32ffffffff000027"
    "100000000000000000",
    2: "00020008636f6e73756d657200000007000572616e676500036d2d310000018bcfe569c80000000200036d2d31000163"
    "00092f31302e302e302e31000493e00000afc80000003800020000000200066f7264657273000772657475726e730000"
    "0001090000000100066f7264657273000000020000000000000003000000060000002f00020000000200066f72646572"
    "73000000020000000000000003000772657475726e730000000100000001ffffffff00036d2d3200016400092f31302e"
    "302e302e32ffffffff000027100000000000000000",
    3: "00030008636f6e73756d657200000007000572616e676500036d2d310000018bcfe569c80000000200036d2d31000469"
    "6e737400016300092f31302e302e302e31000493e00000afc80000004000030000000200066f72646572730007726574"
    "75726e7300000001090000000100066f72646572730000000200000000000000030000000600067261636b2d61000000"
    "2f00030000000200066f7264657273000000020000000000000003000772657475726e730000000100000001ffffffff"
    "00036d2d32ffff00016400092f31302e302e302e32ffffffff000027100000000000000000",
    4: "000409636f6e73756d6572000000070672616e6765046d2d310000018bcfe569c803046d2d3105696e737402630a2f31"
    "302e302e302e31000493e00000afc84100030000000200066f7264657273000772657475726e73000000010900000001"
    "00066f72646572730000000200000000000000030000000600067261636b2d613000030000000200066f726465727300"
    "0000020000000000000003000772657475726e730000000100000001ffffffff00046d2d320002640a2f31302e302e30"
    "2e32ffffffff000027100101010001070103c80100000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000",
}
WITHOUT_MEMBERS = {
    3: "00030008636f6e73756d657200000008ffffffff000000000000000100000000",
    4: "000409636f6e73756d657200000008000000000000000000010100",
}
LEGACY_KEY, OFFSET_KEY, GROUP_KEY = (
    bytes.fromhex(text)
    for text in (
        "0000000762696c6c696e6700066f726465727300000003",
        "0001000762696c6c696e6700066f726465727300000003",
        "0002000762696c6c696e67",
    )
)
OTHER_KEYS = {
    "share group metadata": "000b000762696c6c696e67",
    "share group member metadata": "000a000762696c6c696e6700016d",
    "streams group metadata": "0011000762696c6c696e67",
}
ORDERS_ID, RETURNS_ID = "69b71d79-f821-8a39-259a-7a29aabb2db8", "00000000-0000-0001-0000-000000000002"
NEWER = {
    "epoch": (
        "0003000762696c6c696e67",
        "00000000000701000800000000075bcd15",
        GroupEpoch("billing", 7),
    ),
    "topics": (
        "0004000762696c6c696e67",
        ("00000369b71d79f8218a39259a7a29aabb2db8076f7264657273000000020300000000030261026200000000010202620000"
        "000000000000000100000000000000020872657475726e7300000001010000"),
        GroupTopics("billing", (("orders", 2), ("returns", 1))),
    ),
    "a classic member": (
        "0005000762696c6c696e6700036d2d31",
        ("000005696e7374077261636b2d6102630a2f31302e302e302e3103076f72646572730872657475726e7300000493e0000100"
            "29010000afc8030672616e6765040001020013636f6f70657261746976652d737469636b790300030000"
        ),
        NewerGroupMember(
            "billing", "m-1", "inst", "rack-a", "c", "/10.0.0.1", ("orders", "returns"), None, 300000, None, 45000,
            ("range", "cooperative-sticky"),
        ),
    ),
    "a newer member": (
        "0005000762696c6c696e6700036d2d31",
        "0000000002640a2f31302e302e302e3201066f72642e2a0000afc808756e69666f726d00",
        NewerGroupMember("billing", "m-1", None, None, "d", "/10.0.0.2", (), "ord.*", 45000, "uniform"),
    ),
    "a newer member, its classic metadata null": (
        "0005000762696c6c696e6700036d2d31",
        "0000000002640a2f31302e302e302e3201066f72642e2a0000afc808756e69666f726d01000100",
        NewerGroupMember("billing", "m-1", None, None, "d", "/10.0.0.2", (), "ord.*", 45000, "uniform"),
    ),
    "target epoch": (
        "0006000762696c6c696e67",
        "0000000000070100080000018bcfe5687b",
        TargetEpoch("billing", 7),
    ),
    "target": (
        "0007000762696c6c696e6700036d2d31",
        "00000269b71d79f8218a39259a7a29aabb2db80300000000000000030000",
        TargetAssignment("billing", "m-1", ((ORDERS_ID, (0, 3)),)),
    ),
    "assignment": (
        "0008000762696c6c696e6700036d2d31",
        ("00000000000700000006010269b71d79f8218a39259a7a29aabb2db803000000000000000301000903000000050000000702"
        "0000000000000001000000000000000202000000010000"),
        CurrentAssignment(
            "billing", "m-1", 7, 6, "unrevoked partitions", ((ORDERS_ID, (0, 3)),), ((RETURNS_ID, (1,)),)
        ),
    ),
    "pattern": (
        "0010000762696c6c696e6700056f72642e2a",
        "000002076f726465727300000000000000090000018bcfe5687b00",
        PatternTopics("billing", "ord.*", ("orders",)),
    ),
}  # fmt: skip
ORDERS_0, ORDERS_3, RETURNS_1 = TopicPartition("orders", 0), TopicPartition("orders", 3), TopicPartition("returns", 1)


@pytest.mark.parametrize(
    ("group", "of_50", "of_10"),
    [
        ("groupkafka", 5, 5),
        ("my-group", 12, 2),  # a negative hash: masking its sign bit away would give 36
        ("test", 48, 8),
        ("消费组", 35, 5),
        ("g😀", 32, 2),  # two UTF-16 units for one character
        ("polygenelubricants", 0, 0),  # Integer.MIN_VALUE has no positive
        ("", 0, 0),
    ],
)
def test_a_group_is_in_the_partition_that_kafka_puts_it_in(group, of_50, of_10):
    assert (coordinator_partition(group, 50), coordinator_partition(group, 10)) == (of_50, of_10)


@pytest.mark.parametrize("version", OFFSET_VALUES)
@pytest.mark.parametrize("key", [LEGACY_KEY, OFFSET_KEY], ids=["key 0", "key 1"])
def test_a_commit_of_every_version_is_read(key, version):
    assert decode(key, bytes.fromhex(OFFSET_VALUES[version])) == CommitEntry(
        group="billing",
        tp=ORDERS_3,
        offset=180,
        metadata='{"reader":"r","generation":7}',
        commit_timestamp_ms=1700000000123,
        leader_epoch=5 if version >= 3 else None,
        expire_timestamp_ms=1700000099999 if version == 1 else None,
    )


@pytest.mark.parametrize("version", GROUP_VALUES)
def test_a_generation_of_every_version_is_read(version):
    generation = decode(GROUP_KEY, bytes.fromhex(GROUP_VALUES[version]))
    assert isinstance(generation, GenerationEntry)
    assert (generation.group, generation.protocol_type, generation.generation) == ("billing", "consumer", 7)
    assert (generation.protocol, generation.leader) == ("range", "m-1")
    assert generation.state_timestamp_ms == (1700000000456 if version >= 2 else None)
    first, second = generation.members
    assert (first.member_id, first.client_id, first.host) == ("m-1", "c", "/10.0.0.1")
    assert (first.instance_id, second.instance_id) == ("inst" if version >= 3 else None, None)
    assert first.rebalance_timeout_ms == (300000 if version >= 1 else None)
    assert (first.session_timeout_ms, second.session_timeout_ms) == (45000, 10000)
    assert subscription_of(first.subscription) == MemberSubscription(
        version=min(version, 3),
        topics=("orders", "returns"),
        owned=(ORDERS_0, ORDERS_3) if version >= 1 else (),
        generation=6 if version >= 2 else None,
        rack="rack-a" if version >= 3 else None,
    )
    assert assignment_of(first.assignment) == (ORDERS_0, ORDERS_3, RETURNS_1)
    assert (second.member_id, subscription_of(second.subscription).topics) == ("m-2", ())
    assert assignment_of(second.assignment) == ()


@pytest.mark.parametrize("version", WITHOUT_MEMBERS)
def test_a_generation_that_everybody_left_has_neither_protocol_nor_leader(version):
    generation = decode(GROUP_KEY, bytes.fromhex(WITHOUT_MEMBERS[version]))
    assert isinstance(generation, GenerationEntry)
    assert (generation.generation, generation.protocol, generation.leader, generation.members) == (8, None, None, ())


def test_tombstones_say_what_is_gone():
    assert decode(OFFSET_KEY, None) == decode(LEGACY_KEY, None) == OffsetRemoved("billing", ORDERS_3)
    assert decode(GROUP_KEY, None) == GroupRemoved("billing")


@pytest.mark.parametrize(("key", "value", "entry"), NEWER.values(), ids=NEWER)
def test_records_of_a_group_of_the_newer_protocol_are_read(key, value, entry):
    assert decode(bytes.fromhex(key), bytes.fromhex(value)) == entry
    kind, about = int(key[:4], 16), getattr(entry, "member_id", getattr(entry, "pattern", None))
    assert decode(bytes.fromhex(key), None) == NewerRecordRemoved("billing", kind, about)
    assert decode(bytes.fromhex(key) + b"!", None) == Undecodable(
        "billing", f"key: 1 bytes are left over after {len(key) // 2}"
    )
    name = NewerRecordRemoved("billing", kind, about).name
    where = f"value of {name}{'' if about is None else f' of {about}'}"
    assert decode(bytes.fromhex(key), b"\0\1") == Undecodable("billing", f"{where}: version 1 is not known, only 0 is")


def test_members_say_their_protocol():
    assert (NEWER["a classic member"][2].protocol, NEWER["a newer member"][2].protocol) == ("classic", "consumer")


@given(
    st.sampled_from(list(NEWER.values())),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    st.integers(0, 200),
)
def test_no_change_of_a_newer_record_breaks_the_decoder(record, changes, size):
    value = bytearray(bytes.fromhex(record[1]))
    for position, byte in changes:
        value[position % len(value)] = byte
    decode(bytes.fromhex(record[0]), bytes(value[:size]))


@pytest.mark.parametrize(("name", "key"), OTHER_KEYS.items())
def test_records_of_other_kinds_of_groups_are_named_with_their_group(name, key):
    kind = int(key[:4], 16)
    assert decode(bytes.fromhex(key), b"\0\0anything") == OtherRecord("billing", kind, removed=False)
    assert decode(bytes.fromhex(key), None) == OtherRecord("billing", kind, removed=True)
    assert OtherRecord("billing", kind, removed=True).name == name


def test_an_unknown_kind_is_a_record_of_another_kind_whatever_its_key_looks_like():
    assert decode(b"\0\x63\0\x07billing", b"") == OtherRecord("billing", 99, removed=False)
    assert decode(b"\0\x63\xff", b"") == OtherRecord(None, 99, removed=False)
    assert OtherRecord(None, 99, removed=False).name == "unknown"


@pytest.mark.parametrize(
    ("key", "value", "group", "problem"),
    [
        (None, b"", None, "key: there is none"),
        (b"", b"", None, "key: 2 bytes announced at 0 of 0"),
        (b"\xff\xfe", b"", None, "key: kind -2 cannot be"),
        (b"\0\1\xff\xff", b"", None, "key: null at 4, where a string must be"),
        (b"\0\1\x7f\xffbilling", b"", None, "key: 32767 bytes announced at 4 of 11"),
        (OFFSET_KEY + b"!", b"", "billing", "key: 1 bytes are left over after 23"),
        (OFFSET_KEY, b"", "billing", "value of the offset of orders-3: 2 bytes announced at 0 of 0"),
        (OFFSET_KEY, b"\0\5", "billing", "value of the offset of orders-3: version 5 is not known, only 0 to 4 are"),
        (
            OFFSET_KEY,
            b"\xff\xff",
            "billing",
            "value of the offset of orders-3: version -1 is not known, only 0 to 4 are",
        ),
        (GROUP_KEY, b"\0\4\x02x" + b"\xff" * 30, "billing", "the number that ends at"),
        (GROUP_KEY, bytes.fromhex(WITHOUT_MEMBERS[3])[:-4] + b"\x7f\xff\xff\xff", "billing", "2147483647 elements"),
        (GROUP_KEY, bytes.fromhex(WITHOUT_MEMBERS[3])[:-4] + b"\xff\xff\xff\xff", "billing", "-1 elements announced"),
        (b"\0\2\0\1\xff", b"", None, "key: 'utf-8' codec"),
    ],
)
def test_bytes_that_are_no_record_are_said_to_be_none(key, value, group, problem):
    found = decode(key, value)
    assert isinstance(found, Undecodable)
    assert found.group == group
    assert problem in found.problem


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=200))
def test_no_bytes_break_the_decoder(key, value):
    decode(key, value)


@given(
    st.sampled_from([(OFFSET_KEY, OFFSET_VALUES), (GROUP_KEY, GROUP_VALUES)]),
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.integers(0, 500),
)
def test_no_change_of_a_record_breaks_the_decoder(record, version, changes, size):
    key, values = record
    value = bytearray(bytes.fromhex(values[version]))
    for position, byte in changes:
        value[position % len(value)] = byte
    entry = decode(key, bytes(value[:size]))
    for member in entry.members if isinstance(entry, GenerationEntry) else ():
        for read in (subscription_of, assignment_of):
            with contextlib.suppress(ValueError):
                read(member.subscription + member.assignment)


def test_later_versions_of_the_consumer_protocol_are_read_as_far_as_they_are_known():
    member = decode(GROUP_KEY, bytes.fromhex(GROUP_VALUES[4])).members[0]
    assert assignment_of(b"\0\x09" + member.assignment[2:] + b"more") == (ORDERS_0, ORDERS_3, RETURNS_1)
    assert subscription_of(b"\0\x09" + member.subscription[2:] + b"more").rack == "rack-a"
    with pytest.raises(ValueError, match="version -1 cannot be"):
        assignment_of(b"\xff\xff")


def test_the_group_log_of_the_tests_is_made_of_the_same_values():
    generation = group_log.decode(GROUP_KEY, bytes.fromhex(GROUP_VALUES[3]))
    assert generation == group_log.GroupGeneration("billing", 7, "range", "m-1", ("m-1", "m-2"))
    commit = group_log.decode(OFFSET_KEY, bytes.fromhex(OFFSET_VALUES[4]))
    assert (commit.topic, commit.partition, commit.offset, commit.timestamp_ms) == ("orders", 3, 180, 1700000000123)
    assert group_log.decode(OFFSET_KEY, None).offset is None
    assert group_log.decode(GROUP_KEY, None) is None
    with pytest.raises(ValueError, match="version 5"):
        group_log.decode(OFFSET_KEY, b"\0\5")
