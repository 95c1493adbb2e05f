// A schema registry of franz-go's, srfake, which keeps everything in memory.
//
// It listens at the address that is its argument, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go http.Serve(listener, srfake.NewRegistry().Handler())
	io.Copy(io.Discard, os.Stdin)
}
