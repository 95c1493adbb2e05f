#!/usr/bin/env bash
# goavro 2.15.0 (github.com/linkedin/goavro/v2) and hamba/avro 2.31.0, Go 1.26; a decimal in a fixed, the type that Spark's to_avro has
# for each DECIMAL.
# Guess: the amount 0 is written as a fixed of zero bytes, as hamba/avro does, and as goavro itself writes it where bytes hold it.
# Instead goavro writes every amount but 0: "datum size ought to equal schema size: 1 != 6", as it makes one byte of a zero.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod
go version
cat > main.go <<'GO'
package main

import (
	"fmt"
	"math/big"
	"os"

	"github.com/hamba/avro/v2"
	"github.com/linkedin/goavro/v2"
)

func main() {
	const logical = `"logicalType": "decimal", "precision": 10, "scale": 2}`
	bytes, fixed := `{"type": "bytes", `+logical, `{"type": "fixed", "name": "Amount", "size": 6, `+logical
	found := ""
	for _, schema := range []string{bytes, fixed} {
		for _, cents := range []int64{-1, 0, 1} {
			amount := big.NewRat(cents, 100)
			codec, err := goavro.NewCodec(schema)
			if err != nil {
				panic(err)
			}
			value, refused := codec.BinaryFromNative(nil, amount)
			other, err := avro.Marshal(avro.MustParse(schema), amount)
			if err != nil {
				panic(err)
			}
			found += fmt.Sprintln(amount.FloatString(2), schema[10:15], "goavro", value, refused, "hamba/avro", other)
		}
	}
	fmt.Print(found)
	expected := `-0.01 bytes goavro [2 255] <nil> hamba/avro [2 255]
0.00 bytes goavro [2 0] <nil> hamba/avro [2 0]
0.01 bytes goavro [2 1] <nil> hamba/avro [2 1]
-0.01 fixed goavro [255 255 255 255 255 255] <nil> hamba/avro [255 255 255 255 255 255]
0.00 fixed goavro [] cannot encode binary fixed "Amount": datum size ought to equal schema size: 1 != 6 hamba/avro [0 0 0 0 0 0]
0.01 fixed goavro [0 0 0 0 0 1] <nil> hamba/avro [0 0 0 0 0 1]
`
	if found != expected {
		os.Exit(1)
	}
}
GO
go mod init finding 2> log
go get github.com/linkedin/goavro/v2@v2.15.0 github.com/hamba/avro/v2@v2.31.0 2>> log
go mod tidy 2>> log
go run .
