"""Builds the one compiled module, the Cython decoder.

A compiler that fails fails the build: an installation that silently fell back to the slow decoder would be noticed
only in production. ``SPARK_KAFKA_GROUP_NO_EXTENSION=1`` asks for pure Python; ``SPARK_KAFKA_GROUP_WERROR=1``
turns compiler warnings into errors (CI sets it).
"""

import os

from setuptools import Extension, setup

DECODE = "spark_kafka_group/executor/decode"


def extensions() -> list[Extension]:
    if os.environ.get("SPARK_KAFKA_GROUP_NO_EXTENSION") == "1":
        return []
    flags = ["-O3", "-Wall", "-Wextra", "-Wno-unused-parameter"]
    if os.environ.get("SPARK_KAFKA_GROUP_WERROR") == "1":
        flags.append("-Werror")
    module = Extension(
        "spark_kafka_group.executor.decode._decode_c",
        [f"{DECODE}/_decode_c.pyx"],
        depends=[f"{DECODE}/crc32c.h"],
        include_dirs=[DECODE],
        extra_compile_args=flags,
    )
    # setuptools hands it to Cython when it builds it, so that an sdist has the source and not the C that was generated
    return [module]


setup(ext_modules=extensions())
