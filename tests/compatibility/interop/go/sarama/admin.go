package main

import (
	"github.com/IBM/sarama"
	"kafkalite.interop/script"
)

// administer tells a fact after each thing that ClusterAdmin has done to the task's topic and group and a new topic.
func administer(task script.Task) {
	config := configured(task)
	client := script.Must(sarama.NewClient([]string{task.Bootstrap}, config))
	admin := script.Must(sarama.NewClusterAdminFromClient(client))
	defer admin.Close()
	created := task.Topic + "-new"
	tell := func(step string, is any) { script.Tell(map[string]any{"step": step, "is": is}) }

	brokers, _, err := admin.DescribeCluster()
	script.Check(err, "describe the cluster")
	tell("brokers", len(brokers))

	retention, larger := "3600000", "2000000"
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention},
	}
	script.Check(admin.CreateTopic(created, detail, false), "create")
	tell("created twice", script.Refusal(admin.CreateTopic(created, detail, false)))
	tell("retention.ms", setting(admin, created, "retention.ms"))
	if config.Version.IsAtLeast(sarama.V2_3_0_0) {
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &larger}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{"max.message.bytes": entry}
		script.Check(admin.IncrementalAlterConfig(sarama.TopicResource, created, entries, false), "alter the configs")
	} else {
		entries := map[string]*string{"retention.ms": &retention, "max.message.bytes": &larger}
		script.Check(admin.AlterConfig(sarama.TopicResource, created, entries, false), "set the configs")
	}
	tell("max.message.bytes", setting(admin, created, "max.message.bytes"))
	if config.Version.IsAtLeast(sarama.V1_0_0_0) {
		script.Check(admin.CreatePartitions(created, 3, nil, false), "add a partition")
		tell("partitions", script.Must(admin.ListTopics())[created].NumPartitions)
	}
	script.Check(admin.DeleteTopic(created), "delete")
	_, there := script.Must(admin.ListTopics())[created]
	tell("gone", !there)

	tell("start", script.Must(client.GetOffset(task.Topic, 0, sarama.OffsetOldest)))
	tell("end", script.Must(client.GetOffset(task.Topic, 0, sarama.OffsetNewest)))
	tell("at the time", script.Must(client.GetOffset(task.Topic, 0, int64(task.Count))))
	script.Check(admin.DeleteRecords(task.Topic, map[int32]int64{0: 3}), "delete records")
	tell("start after the cut", script.Must(client.GetOffset(task.Topic, 0, sarama.OffsetOldest)))

	manager := script.Must(sarama.NewOffsetManagerFromClient(task.Group, client))
	offsets := script.Must(manager.ManagePartition(task.Topic, 0))
	offsets.MarkOffset(7, "")
	manager.Commit()
	script.Check(offsets.Close(), "close")
	script.Check(manager.Close(), "close")
	fetched := script.Must(admin.ListConsumerGroupOffsets(task.Group, map[string][]int32{task.Topic: {0}}))
	tell("committed", fetched.GetBlock(task.Topic, 0).Offset)
	_, listed := script.Must(admin.ListConsumerGroups())[task.Group]
	tell("group listed", listed)
	tell("group state", script.Must(admin.DescribeConsumerGroups([]string{task.Group}))[0].State)
	if config.Version.IsAtLeast(sarama.V1_1_0_0) {
		script.Check(admin.DeleteConsumerGroup(task.Group), "delete the group")
		_, listed = script.Must(admin.ListConsumerGroups())[task.Group]
		tell("group still listed", listed)
	}
}

func setting(admin sarama.ClusterAdmin, topic, name string) string {
	asked := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}}
	for _, entry := range script.Must(admin.DescribeConfig(asked)) {
		if entry.Name == name {
			return entry.Value
		}
	}
	return "missing"
}
