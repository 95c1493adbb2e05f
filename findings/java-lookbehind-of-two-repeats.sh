#!/usr/bin/env bash
# java.util.regex of Java 17.0.15 and 25; pyspark 4.3.0 gives py4j, by which Python asks that Java. A lookbehind has repeats without
# a bound: (?<=a+)b, (?<=a+b+)c, (?<=(?:a|b)+)c. Java documents no limit of a lookbehind's length.
# Guess: all three find the "c" or "b" of "abc", or all three are refused with "no obvious maximum length", as only the last one is.
# Instead (?<=a+b+)c compiles and finds nothing, in no text, and (?<!a+b+)c finds the "c" that it forbids: the greatest lengths of
# the two repeats are added as 32-bit numbers, which gives -2. With {1,9} in place of + both answer as they should.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0
cat > ask.py <<'PYTHON'
import glob, os, pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

(jar,) = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "py4j-*.jar"))
port, token = launch_gateway(jarpath=jar, die_on_exit=True, enable_auth=True)
java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)).jvm.java
print("Java", java.lang.System.getProperty("java.version"))


def finds(pattern, text):
    try:
        found = java.util.regex.Pattern.compile(pattern).matcher(text).find()
    except Py4JJavaError as error:
        found = error.java_exception.getDescription()
    print(f"{pattern:20} in {text!r:8} {found}")
    return found


seen = [
    finds("(?<=a+)b", "abc"),
    finds("(?<=a{1,9}b{1,9})c", "abc"),
    finds("(?<=a+b+)c", "abc"),
    finds("(?<!a{1,9}b{1,9})c", "abc"),
    finds("(?<!a+b+)c", "abc"),
    finds("(?<=(?:a|b)+)c", "abc"),
]
expected = [True, True, False, False, True, "Look-behind group does not have an obvious maximum length"]
print(end="", flush=True)
os._exit(seen != expected)  # Java ends with its standard input
PYTHON
env/bin/python ask.py
