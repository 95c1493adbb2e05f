"""Builds the compiled modules, the Cython decoder and encoder, for Python's stable ABI: one wheel is for every Python
from 3.11.

The stable ABI costs the decoder less than 5% of its speed. Free-threaded Pythons do not have it.

A compiler that fails fails the build: an installation that silently fell back to the slow decoder would be noticed
only in production. ``SPARK_KAFKA_GROUP_NO_EXTENSION=1`` asks for pure Python; ``SPARK_KAFKA_GROUP_WERROR=1``
turns compiler warnings into errors (CI sets it); ``SPARK_KAFKA_GROUP_COMPILED=1`` takes what was compiled in place;
``CFLAGS`` may choose another optimization than ``-O3``.
"""

import os
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError, CompileError

DECODE, ENCODE = "spark_kafka_group/executor/decode", "spark_kafka_group/executor/encode"
VALUES = "spark_kafka_group/executor/values"
INCLUDED = [f"spark_kafka_group/executor/{name}.pxi" for name in ("cursor", "utf8", "values/value_columns")]
OLDEST, OLDEST_TAG = "0x030B0000", "cp311"
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
WAYS_OUT = (
    "The decoder cannot be compiled: install a C compiler and Python's headers (Debian: apt install gcc python3-dev), "
    "or set the environment variable SPARK_KAFKA_GROUP_NO_EXTENSION=1 for a decoder in Python, which is slow"
)
AT_START = "import sys; any(each.endswith('/pyspark.zip') for each in sys.path) and __import__('{}')\n"
"""The line of `groupkafka.pth`. Python runs it whenever it starts: `spark_kafka_group/spark/start_path.py` says why."""


class WithStart(build_py):
    """The packages, and two files beside them that Python looks at as it starts."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            name = "groupkafka_start_path"
            self.copy_file("spark_kafka_group/spark/start_path.py", f"{self.build_lib}/{name}.py")
            Path(self.build_lib, "groupkafka.pth").write_text(AT_START.format(name))


class BuildOrSay(build_ext):
    """A build that names the ways out when it fails, behind the compiler's own lines."""

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            raise CompileError(f"{error}\n{WAYS_OUT}") from error

    def build_extension(self, ext: Extension) -> None:
        """Compile, or take what is compiled in the source tree, where `make` says that it is of these sources."""
        compiled = self.get_ext_filename(ext.name)
        if self.inplace or os.environ.get("SPARK_KAFKA_GROUP_COMPILED") != "1":
            super().build_extension(ext)
        else:
            self.copy_file(compiled, self.get_ext_fullpath(ext.name))


def extensions() -> list[Extension]:
    if os.environ.get("SPARK_KAFKA_GROUP_NO_EXTENSION") == "1":
        return []
    flags = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
    if "-O" not in os.environ.get("CFLAGS", ""):
        flags.append("-O3")
    if os.environ.get("SPARK_KAFKA_GROUP_WERROR") == "1":
        flags.append("-Werror")
    # setuptools hands them to Cython when it builds them: so an sdist has the source, and not the C that was generated
    return [
        Extension(
            f"{folder}/{name}".replace("/", "."),
            [f"{folder}/{name}.pyx"],
            depends=[f"{DECODE}/crc32c.h", *INCLUDED],
            include_dirs=[DECODE],
            extra_compile_args=flags,
            define_macros=[("Py_LIMITED_API", OLDEST)] if STABLE else [],
            py_limited_api=STABLE,
        )
        for folder, name in (
            (DECODE, "_decode_c"),
            (ENCODE, "_encode_c"),
            (VALUES, "_avro_c"),
            (VALUES, "_json_c"),
            (VALUES, "_write_c"),
            (VALUES, "_protobuf_c"),
        )
    ]


compiled = extensions()
setup(
    ext_modules=compiled,
    cmdclass={"build_ext": BuildOrSay, "build_py": WithStart},
    options={"bdist_wheel": {"py_limited_api": OLDEST_TAG}} if compiled and STABLE else {},
)
