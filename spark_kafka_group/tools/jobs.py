"""``jobs``: the programs for spark-submit and the settings that are installed with the package."""

from __future__ import annotations

import argparse
import ast
import os
import sys
from pathlib import Path

from spark_kafka_group.tools.arguments import Commands, UsageError
from spark_kafka_group.tools.formatting import sentence, texts

SUMMARY = "run a program for spark-submit, or show where the programs are"
DESCRIPTION = """\
Without a name: lists the programs and settings that are installed with this
package. With one: runs the program through spark-submit, with these settings
and this Python. What follows the name goes to the program:

  jobs stream-to-parquet --help

With --path: prints where it is, for a spark-submit of your own:

  spark-submit --master spark://host:7077 \\
      --properties-file "$(groupkafka jobs --path spark-defaults.conf)" \\
      "$(groupkafka jobs --path stream-to-parquet)" ...
"""
SETTINGS = "spark-defaults.conf"
WITHOUT_SPARK_SUBMIT = "demo"  # it starts a broker, and spark-submit itself
HELP = {"-h", "--help"}  # arguments with which a program starts no Spark


def add_to(commands: Commands) -> None:
    parser = commands.add_parser(
        "jobs", help=SUMMARY, description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--path", action="store_true", help="print where it is, and do not run it")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a program, or with --path a file of settings")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List, show or run; a program that runs takes this process over."""
    if args.name is None:
        if args.path:
            raise UsageError(f"--path needs a name: {', '.join([*programs(), *settings()])}")
        print(texts("PURPOSE", {name: _purpose(file) for name, file in programs().items()}))
        print()
        print(sentence(f"Files of settings, for --path: {', '.join(settings())}"))
        return 0
    if args.path:
        print(_named(args.name, programs() | settings()))
        return 0
    _run(_named(args.name, programs()), args.arguments)
    return 0


def programs() -> dict[str, Path]:
    """Programs by name: ``stream-to-parquet``, ..."""
    return {file.stem.replace("_", "-"): file for file in sorted(_folder("jobs").glob("*.py"))}


def settings() -> dict[str, Path]:
    """Files of settings by name: ``spark-defaults.conf``, ..."""
    return {file.name: file for file in sorted(_folder("conf").rglob("*")) if file.is_file()}


def _folder(name: str) -> Path:
    """A folder of the project's top level, which an installed package has inside."""
    package = Path(__file__).parents[1]
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


def _named(name: str, files: dict[str, Path]) -> Path:
    wanted = name if name in files else name.removesuffix(".py").replace("_", "-")
    if wanted not in files:
        raise UsageError(f"there is no {name}: take one of {', '.join(files)}")
    return files[wanted]


def _purpose(file: Path) -> str:
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def _run(program: Path, arguments: list[str]) -> None:
    import pyspark

    home = os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__path__[0])))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = [str(program), *arguments]
    if program.stem == WITHOUT_SPARK_SUBMIT or not HELP.isdisjoint(arguments):
        os.execv(sys.executable, [sys.executable, *own])
    conf = settings()
    options = ["--properties-file", str(conf[SETTINGS])]
    options += [
        "--conf",
        f"spark.driver.extraJavaOptions=-Dlog4j2.configurationFile={conf['log4j2.properties'].as_uri()}",
    ]
    os.execvp("bash", ["bash", f"{home}/bin/spark-submit", *options, *own])
