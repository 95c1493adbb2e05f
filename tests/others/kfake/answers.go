package main

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The same for each request of a kind, from now on. A control that does not answer leaves the request to kfake.
func each[R kmsg.Request](cluster *kfake.Cluster, kind R, control func(R) (kmsg.Response, error, bool)) {
	cluster.ControlKey(kind.Key(), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return control(request.(R))
	})
}

const (
	latest      = -1 // stands in the place of a time for a log's end
	recordsFrom = 57 // where a record batch has the number of its records
)

var errHungUp = errors.New("the connection is closed")

// The offset is kept, and the note of who has committed it is not.
func commitsWithoutMetadata(cluster *kfake.Cluster) {
	each(cluster, &kmsg.OffsetCommitRequest{}, func(request *kmsg.OffsetCommitRequest) (kmsg.Response, error, bool) {
		for _, topic := range request.Topics {
			for at := range topic.Partitions {
				topic.Partitions[at].Metadata = nil
			}
		}
		return nil, nil, false
	})
	each(cluster, &kmsg.TxnOffsetCommitRequest{}, func(request *kmsg.TxnOffsetCommitRequest) (kmsg.Response, error, bool) {
		for _, topic := range request.Topics {
			for at := range topic.Partitions {
				topic.Partitions[at].Metadata = nil
			}
		}
		return nil, nil, false
	})
}

// A question for named settings ends the connection.
func noSettingsByName(cluster *kfake.Cluster) {
	each(cluster, &kmsg.DescribeConfigsRequest{}, func(request *kmsg.DescribeConfigsRequest) (kmsg.Response, error, bool) {
		for _, resource := range request.Resources {
			if len(resource.ConfigNames) > 0 {
				return nil, errHungUp, true
			}
		}
		return nil, nil, false
	})
}

// A producer cannot say which producer it expects (KIP-360).
func noExpectedProducers(cluster *kfake.Cluster) {
	each(cluster, &kmsg.InitProducerIDRequest{}, func(request *kmsg.InitProducerIDRequest) (kmsg.Response, error, bool) {
		if request.ProducerID < 0 {
			return nil, nil, false
		}
		response := request.ResponseKind().(*kmsg.InitProducerIDResponse)
		response.ErrorCode = kerr.UnknownServerError.Code
		return response, nil, true
	})
}

// undecodable is a response that ends before its fields do.
type undecodable struct{ kmsg.Response }

func (undecodable) AppendTo(to []byte) []byte { return binary.BigEndian.AppendUint32(to, 0) }

// Before version 8, a question for the offsets of all topics is answered with bytes that nobody can read.
func noOffsetsOfAllTopics(cluster *kfake.Cluster) {
	each(cluster, &kmsg.OffsetFetchRequest{}, func(request *kmsg.OffsetFetchRequest) (kmsg.Response, error, bool) {
		if request.Topics != nil || request.Version >= 8 {
			return nil, nil, false
		}
		return undecodable{request.ResponseKind()}, nil, true
	})
}

// lookups answers a look-up of offsets where a function has an answer for all of its partitions, and leaves it to kfake else.
func lookups(cluster *kfake.Cluster, answer func(at *kfake.PartitionInfo, topic string, timeMS int64) (offset, timestamp int64, is bool)) {
	each(cluster, &kmsg.ListOffsetsRequest{}, func(request *kmsg.ListOffsetsRequest) (kmsg.Response, error, bool) {
		response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range request.Topics {
			of := kmsg.NewListOffsetsResponseTopic()
			of.Topic = topic.Topic
			for _, asked := range topic.Partitions {
				at := cluster.PartitionInfo(topic.Topic, asked.Partition)
				if at == nil {
					return nil, nil, false
				}
				offset, timestamp, is := answer(at, topic.Topic, asked.Timestamp)
				if !is {
					return nil, nil, false
				}
				found := kmsg.NewListOffsetsResponseTopicPartition()
				found.Partition, found.Offset, found.Timestamp = asked.Partition, offset, timestamp
				of.Partitions = append(of.Partitions, found)
			}
			response.Topics = append(response.Topics, of)
		}
		return response, nil, true
	})
}

// The end of a log is where its last record batch begins.
func endsAtLastBatch(cluster *kfake.Cluster) {
	type partition struct {
		topic  string
		number int32
	}
	written := map[partition]int64{}
	each(cluster, &kmsg.ProduceRequest{}, func(request *kmsg.ProduceRequest) (kmsg.Response, error, bool) {
		for _, topic := range request.Topics {
			name := topic.Topic
			if known := cluster.TopicIDInfo(topic.TopicID); known != nil {
				name = known.Topic
			}
			for _, of := range topic.Partitions {
				if len(of.Records) >= recordsFrom+4 {
					records := binary.BigEndian.Uint32(of.Records[recordsFrom:])
					written[partition{name, of.Partition}] = int64(records)
				}
			}
		}
		return nil, nil, false
	})
	lookups(cluster, func(at *kfake.PartitionInfo, topic string, timeMS int64) (int64, int64, bool) {
		return at.HighWatermark - written[partition{topic, at.Partition}], -1, timeMS == latest
	})
}

// Each time is answered with the first offset, and no timestamp.
func timesWithoutTimestamps(cluster *kfake.Cluster) {
	lookups(cluster, func(at *kfake.PartitionInfo, _ string, timeMS int64) (int64, int64, bool) {
		return at.LogStartOffset, -1, timeMS >= 0
	})
}

// Each time is answered with the first offset, as of an older record.
func timesBefore(cluster *kfake.Cluster) {
	lookups(cluster, func(at *kfake.PartitionInfo, _ string, timeMS int64) (int64, int64, bool) {
		return at.LogStartOffset, timeMS - 1, timeMS >= 0
	})
}

// Nobody may describe the group "denied".
func oneGroupDenied(cluster *kfake.Cluster) {
	cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.DescribeGroups}, Group: "denied", Err: kerr.GroupAuthorizationFailed, Count: -1,
	})
}
