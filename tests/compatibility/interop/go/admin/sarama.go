package main

import (
	"github.com/IBM/sarama"
	"kafkalite.interop/script"
)

func bySarama(task script.Task) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	admin := script.Must(sarama.NewClusterAdmin([]string{task.Bootstrap}, config))
	defer admin.Close()

	brokers, _, err := admin.DescribeCluster()
	script.Check(err, "describe the cluster")
	var ids []int32
	for _, broker := range brokers {
		ids = append(ids, broker.ID())
	}
	directories := 0
	for _, dirs := range script.Must(admin.DescribeLogDirs(ids)) {
		for _, dir := range dirs {
			directories++
			for _, topic := range dir.Topics {
				if topic.Topic == task.Topic {
					tell("size", topic.Partitions[0].Size)
				}
			}
		}
	}
	tell("directories", directories)
	tell("reassignments", len(script.Must(admin.ListPartitionReassignments(task.Topic, []int32{0}))))

	script.Check(admin.AlterPartitionReassignments(task.Topic, [][]int32{{ids[0]}}), "reassign to where it is")
	elsewhere := admin.AlterPartitionReassignments(task.Topic, [][]int32{{ids[0] + 1}})
	tell("reassigned to nobody", script.Refusal(elsewhere))
	elections := map[string]sarama.ElectionType{"preferred": sarama.PreferredElection, "unclean": sarama.UncleanElection}
	for kind, election := range elections {
		results := script.Must(admin.ElectLeaders(election, map[string][]int32{task.Topic: {0, 9}}))
		tell(kind, []int16{int16(results[task.Topic][0].ErrorCode), int16(results[task.Topic][9].ErrorCode)})
	}

	script.Check(admin.DeleteConsumerGroupOffset(task.Group, task.Topic, 0), "delete an offset")
	tell("deleted twice", script.Refusal(admin.DeleteConsumerGroupOffset(task.Group, task.Topic, 0)))
	left := 0
	for _, partitions := range script.Must(admin.ListConsumerGroupOffsets(task.Group, nil)).Blocks {
		left += len(partitions)
	}
	tell("offsets left", left)
}
