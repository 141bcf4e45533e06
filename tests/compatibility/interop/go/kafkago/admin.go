package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
	"kafkalite.interop/script"
)

// administer tells a fact after each thing that the Client has done to the task's topic and group and a new topic. The
// requests of offsets are made twice, by the Client and by a connection, which speak different versions.
func administer(ctx context.Context, task script.Task) {
	client := &kafka.Client{Addr: kafka.TCP(task.Bootstrap), Timeout: 10 * time.Second}
	created := task.Topic + "-new"
	tell := func(step string, is any) { script.Tell(map[string]any{"step": step, "is": is}) }
	metadata := func(topics ...string) *kafka.MetadataResponse {
		return script.Must(client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics}))
	}
	tell("brokers", len(metadata().Brokers))

	wanted := kafka.TopicConfig{
		Topic: created, NumPartitions: 2, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "3600000"}},
	}
	create := func() error {
		request := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}}
		return script.Must(client.CreateTopics(ctx, request)).Errors[created]
	}
	script.Check(create(), "create")
	tell("created twice", script.Refusal(create()))
	tell("retention.ms", setting(ctx, client, created, "retention.ms"))
	change := kafka.IncrementalAlterConfigsRequestConfig{
		Name: "max.message.bytes", Value: "2000000", ConfigOperation: kafka.ConfigOperationSet,
	}
	altered := script.Must(client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: created,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{change},
		}},
	}))
	script.Check(altered.Resources[0].Error, "alter the configs")
	tell("max.message.bytes", setting(ctx, client, created, "max.message.bytes"))
	more := kafka.TopicPartitionsConfig{Name: created, Count: 3}
	request := &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{more}}
	script.Check(script.Must(client.CreatePartitions(ctx, request)).Errors[created], "add a partition")
	conn := script.Must(kafka.DialLeader(ctx, "tcp", task.Bootstrap, task.Topic, 0))
	defer conn.Close()
	partitions := 0
	for partitions < int(more.Count) && ctx.Err() == nil { // another broker learns of it a moment later
		partitions = len(script.Must(conn.ReadPartitions(created)))
	}
	tell("partitions", partitions)
	script.Check(conn.DeleteTopics(created), "delete")
	gone := true
	for _, partition := range script.Must(conn.ReadPartitions()) {
		gone = gone && partition.Topic != created
	}
	tell("gone", gone)

	listed := script.Must(client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{task.Topic: {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}},
	})).Topics[task.Topic][0]
	script.Check(listed.Error, "list offsets")
	first, last, err := conn.ReadOffsets()
	script.Check(err, "read offsets")
	if first != listed.FirstOffset || last != listed.LastOffset {
		tell("the connection says", []int64{first, last})
	}
	tell("start", listed.FirstOffset)
	tell("end", listed.LastOffset)
	tell("at the time", script.Must(conn.ReadOffset(time.UnixMilli(int64(task.Count)))))

	commits := map[string][]kafka.OffsetCommit{task.Topic: {{Partition: 0, Offset: 7}}}
	commit := &kafka.OffsetCommitRequest{GroupID: task.Group, GenerationID: -1, Topics: commits}
	script.Check(script.Must(client.OffsetCommit(ctx, commit)).Topics[task.Topic][0].Error, "commit")
	asked := &kafka.OffsetFetchRequest{GroupID: task.Group, Topics: map[string][]int{task.Topic: {0}}}
	tell("committed", script.Must(client.OffsetFetch(ctx, asked)).Topics[task.Topic][0].CommittedOffset)
	tell("group listed", isListed(ctx, client, task.Group))
	groups := &kafka.DescribeGroupsRequest{GroupIDs: []string{task.Group}}
	tell("group state", script.Must(client.DescribeGroups(ctx, groups)).Groups[0].GroupState)
	deletion := &kafka.DeleteGroupsRequest{GroupIDs: []string{task.Group}}
	script.Check(script.Must(client.DeleteGroups(ctx, deletion)).Errors[task.Group], "delete the group")
	tell("group still listed", isListed(ctx, client, task.Group))
}

func isListed(ctx context.Context, client *kafka.Client, group string) bool {
	for _, found := range script.Must(client.ListGroups(ctx, &kafka.ListGroupsRequest{})).Groups {
		if found.GroupID == group {
			return true
		}
	}
	return false
}

func setting(ctx context.Context, client *kafka.Client, topic, name string) string {
	resource := kafka.DescribeConfigRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{name},
	}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}}
	return script.Must(client.DescribeConfigs(ctx, request)).Resources[0].ConfigEntries[0].ConfigValue
}
