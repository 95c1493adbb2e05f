#!/usr/bin/env bash
# apache-avro 0.21.0 (Apache's for Rust, crates.io), from_avro_datum with the writer's schema alone, and with a reader's schema.
# Guess: a reader's schema that is the writer's changes nothing, and one with an alias reads the renamed field, by Avro's rules.
# Instead with the very same schema a decimal is refused ("Precision 10 too small to hold decimal values with 2 bytes"), unless its
# bytes are as many as the precision may need, and a record of a union becomes the first record of the union that has its fields:
# a cancellation is read as an order. An alias is not looked at: a field that was renamed has its default, without an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export PATH=$PATH:$HOME/.cargo/bin
cargo --version
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.1.0"
edition = "2021"

[dependencies]
apache-avro = { version = "=0.21.0", default-features = false }
TOML
mkdir src
cat > src/main.rs <<'RUST'
use apache_avro::{from_avro_datum, Schema};

fn read(writer: &str, mut value: &[u8], reader: Option<&str>) -> String {
    let schema = |text| Schema::parse_str(text).unwrap();
    match from_avro_datum(&schema(writer), &mut value, reader.map(schema).as_ref()) {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("refused: {error}"),
    }
}

fn main() {
    let event = |name| format!(r#"{{"type": "record", "name": "{name}", "fields": [{{"name": "id", "type": "int"}}]}}"#);
    let amount = r#"{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}"#;
    let events = format!("[{}, {}]", event("Order"), event("Cancellation"));
    let order = r#"{"type": "record", "name": "Order", "fields": [{"name": "pieces", "type": "int"}]}"#;
    let renamed = r#"{"type": "record", "name": "Order", "fields":
        [{"name": "quantity", "type": "int", "aliases": ["pieces"], "default": 1}]}"#;
    let found = [
        read(amount, b"\x04\x04\xd2", None),
        read(amount, b"\x04\x04\xd2", Some(amount)),
        read(&events, b"\x02\x0e", None),
        read(&events, b"\x02\x0e", Some(&events)),
        read(order, b"\x0e", Some(renamed)),
    ];
    let expected = [
        "Decimal(Decimal { value: 1234, len: 2 })",
        "refused: Precision 10 too small to hold decimal values with 2 bytes",
        r#"Union(1, Record([("id", Int(7))]))"#,
        r#"Union(0, Record([("id", Int(7))]))"#,
        r#"Record([("quantity", Int(1))])"#,
    ];
    let what = ["12.34", "12.34, same schema", "a cancellation", "a cancellation, same schema", "7 pieces, renamed to quantity"];
    for (what, found) in what.iter().zip(&found) {
        println!("{what}: {found}");
    }
    assert_eq!(found, expected);
}
RUST
CARGO_TARGET_DIR=target cargo run -q 2> log || { tail -20 log; exit 1; }
