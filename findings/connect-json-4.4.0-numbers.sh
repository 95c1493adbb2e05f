#!/usr/bin/env bash
# Kafka Connect's JsonConverter 4.4.0 (connect-json, Java 17); Ivy of pyspark 4.3.0 downloads it.
# Guess: the converter reads what it has written, and a number that it cannot hold is an error, as a document that is no JSON is.
# Instead with schemas.enable=true NaN and the infinities, which it writes as text, are read as 0.0: a measurement that is missing is
# a zero behind any sink. And with schemas.enable=false a whole number above 9223372036854775807, as of an unsigned BIGINT or a hash,
# wraps without an error: 18446744073709551615 is -1, and a transform or a mirror writes -1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install -q --no-compile pyspark==4.3.0
java -jar env/lib/python3*/site-packages/pyspark/jars/ivy-*.jar -dependency org.apache.kafka connect-json 4.4.0 -confs default \
    -cache "$folder/ivy" -retrieve "$folder/lib/[artifact]-[revision].[ext]" > ivy.log
cat > Numbers.java <<'JAVA'
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;

public class Numbers {
    static JsonConverter converter(boolean schemas) {
        JsonConverter made = new JsonConverter();
        made.configure(Map.of("schemas.enable", schemas), false);
        return made;
    }

    static Object read(JsonConverter by, byte[] json, Object expected) {
        Object found = by.toConnectData("measurements", json).value();
        System.out.println(new String(json) + " is read as " + found);
        if (!found.equals(expected)) System.exit(1);
        return found;
    }

    public static void main(String[] none) {
        JsonConverter with = converter(true);
        read(with, with.fromConnectData("measurements", Schema.FLOAT64_SCHEMA, 1.5), 1.5);
        for (double number : new double[] {Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY})
            read(with, with.fromConnectData("measurements", Schema.FLOAT64_SCHEMA, number), 0.0);
        JsonConverter without = converter(false);
        read(without, "9223372036854775807".getBytes(), Long.MAX_VALUE);
        read(without, "9223372036854775808".getBytes(), Long.MIN_VALUE);
        Object read = read(without, "{\"hash\": 18446744073709551615}".getBytes(), Map.of("hash", -1L));
        System.out.println("written again: " + new String(without.fromConnectData("copies", null, read)));
    }
}
JAVA
java -Xmx300m -cp "lib/*" Numbers.java 2> log || { tail -5 log; exit 1; }
