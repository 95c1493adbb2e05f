#!/usr/bin/env bash
# Kafka Connect's SimpleHeaderConverter 4.4.0 (connect-api, Java 17), the default of header.converter; Ivy of pyspark 4.3.0 downloads it.
# Guess: a header is text, or becomes a number only where the number is written as the same text again, so that a connector which
# hands records on hands their headers on.
# Instead it takes for a number what looks like one, and writes the number: the header 007 becomes 7, an account +49301234 becomes
# 49301234, and the version 1.10 becomes 1.1. Each value has its own type: 7 is an INT8, 700 an INT16, 1.10 a FLOAT32, A7 a STRING.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0
java -jar env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -dependency org.apache.kafka connect-api 4.4.0 -confs default \
    -cache "$folder/ivy" -retrieve "$folder/lib/[artifact]-[revision].[ext]" > ivy.log
cat > Headers.java <<'JAVA'
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.storage.SimpleHeaderConverter;

public class Headers {
    public static void main(String[] none) {
        SimpleHeaderConverter converter = new SimpleHeaderConverter();
        String[][] expected = {
            {"A7", "STRING", "A7"}, {"7", "INT8", "7"}, {"700", "INT16", "700"}, {"007", "INT8", "7"},
            {"+49301234", "INT32", "49301234"}, {"1.10", "FLOAT32", "1.1"}, {"1e5", "INT32", "100000"},
        };
        for (String[] is : expected) {
            SchemaAndValue read = converter.toConnectHeader("orders", "header", is[0].getBytes());
            String type = read.schema().type().name();
            String written = new String(converter.fromConnectHeader("orders", "header", read.schema(), read.value()));
            System.out.println("header " + is[0] + " is read as " + type + " and written as " + written);
            if (!type.equals(is[1]) || !written.equals(is[2])) System.exit(1);
        }
    }
}
JAVA
java -Xmx300m -cp "lib/*" Headers.java 2> log || { tail -5 log; exit 1; }
