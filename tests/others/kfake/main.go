// A cluster of kfake's, Kafka's protocol in Go, that lacks what it is told to lack.
//
// It prints the addresses of its brokers, and ends with its standard input.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// What brokers that are not Apache's were seen to answer otherwise than Kafka.
var answers = map[string]func(*kfake.Cluster){
	"commits-without-metadata": commitsWithoutMetadata,
	"one-group-denied":         oneGroupDenied,
	"no-settings-by-name":      noSettingsByName,
	"no-expected-producers":    noExpectedProducers,
	"no-offsets-of-all-topics": noOffsetsOfAllTopics,
	"ends-at-last-batch":       endsAtLastBatch,
	"times-without-timestamps": timesWithoutTimestamps,
	"times-before":             timesBefore,
}

func main() {
	ports := flag.String("ports", "", "a port for each broker, by commas; free ones by default")
	brokers := flag.Int("brokers", 1, "number of brokers")
	topics := flag.String("topics", "", "name=partitions, by commas")
	data := flag.String("data", "", "folder of what outlives the process")
	lacks := flag.String("lacks", "", "requests that are not known, by Kafka's names and commas")
	caps := flag.String("caps", "", "name=version of requests that are not known in later ones, by commas")
	odd := flag.String("answers", "", "names of other answers, by commas")
	flag.Parse()
	opts := []kfake.Opt{kfake.MaxVersions(versions(listed(*lacks), listed(*caps))), kfake.GroupMinSessionTimeout(1)}
	if *ports == "" {
		opts = append(opts, kfake.NumBrokers(*brokers))
	} else {
		opts = append(opts, kfake.Ports(numbers(*ports)...))
	}
	for _, topic := range listed(*topics) {
		name, partitions := number(topic)
		opts = append(opts, kfake.SeedTopics(int32(partitions), name))
	}
	if *data != "" {
		opts = append(opts, kfake.DataDir(*data))
	}
	cluster, err := kfake.NewCluster(opts...)
	check(err)
	for _, name := range listed(*odd) {
		install, known := answers[name]
		if !known {
			check(fmt.Errorf("no such answer: %s", name))
		}
		install(cluster)
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	io.Copy(io.Discard, os.Stdin)
	cluster.Close()
}

// versions has kfake's newest requests without some of them.
func versions(lacks, caps []string) *kversion.Versions {
	known := kversion.Tip()
	for _, name := range lacks {
		known.SetMaxKeyVersion(key(name), -1)
	}
	for _, limit := range caps {
		name, version := number(limit)
		known.SetMaxKeyVersion(key(name), int16(version))
	}
	return known
}

func key(name string) int16 {
	for number := int16(0); number <= kmsg.MaxKey; number++ {
		if kmsg.NameForKey(number) == name {
			return number
		}
	}
	check(fmt.Errorf("no such request: %s", name))
	return -1
}

func listed(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func numbers(text string) []int {
	var found []int
	for _, one := range listed(text) {
		value, err := strconv.Atoi(one)
		check(err)
		found = append(found, value)
	}
	return found
}

func number(text string) (string, int) {
	name, value, _ := strings.Cut(text, "=")
	found, err := strconv.Atoi(value)
	check(err)
	return name, found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
