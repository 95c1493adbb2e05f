"""Classes of google's for the messages of .proto texts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

INCLUDED = Path(protoc.__file__).parent / "_proto"


def compiled(texts: Mapping[str, str], first: str) -> bytes:
    """What ``protoc --include_imports --descriptor_set_out`` makes of the file `first`, which may need the others."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).write_text(text)
        out = Path(folder, "set")
        arguments = [f"-I{folder}", f"-I{INCLUDED}", "--include_imports", f"--descriptor_set_out={out}", first]
        assert protoc.main(["protoc", *arguments]) == 0
        return out.read_bytes()


def classes(descriptors: bytes) -> dict[str, Any]:
    """The classes of all messages, those in others too, by their full names."""
    pool, found = descriptor_pool.DescriptorPool(), {}

    def add(name: str) -> None:
        descriptor = pool.FindMessageTypeByName(name)
        found[name] = message_factory.GetMessageClass(descriptor)
        for inner in descriptor.nested_types:
            add(inner.full_name)

    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
        for message in file.message_type:
            add(f"{file.package}.{message.name}".lstrip("."))
    return found
