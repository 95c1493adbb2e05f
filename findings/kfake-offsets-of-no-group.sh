#!/usr/bin/env bash
# kfake (github.com/twmb/franz-go/pkg/kfake, 18 September 2026, 01f206a7e32c), franz-go 1.22.3, Go 1.26.
# Guess: OffsetFetch of a group that never was answers that it has no offset (-1, no error), as Kafka does: this is how a
# consumer without membership finds out where to start.
# Instead: the answer is GROUP_ID_NOT_FOUND.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work"
export PATH=$PATH:/usr/local/go/bin GOFLAGS=-mod=mod
go version
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		panic(err)
	}
	asked := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = "never-was"
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = "orders", []int32{0}
	group.Topics = append(group.Topics, topic)
	asked.Groups = append(asked.Groups, group)
	answered, err := asked.RequestWith(context.Background(), client)
	if err != nil {
		panic(err)
	}
	fmt.Println("version", answered.Version, "of OffsetFetch:", kerr.ErrorForCode(answered.Groups[0].ErrorCode))
	if answered.Groups[0].ErrorCode != kerr.GroupIDNotFound.Code {
		os.Exit(1)
	}
}
GO
go mod init finding 2> log
go get github.com/twmb/franz-go/pkg/kfake@v0.0.0-20260918054303-01f206a7e32c github.com/twmb/franz-go@v1.22.3 2>> log
go mod tidy 2>> log
go run .
