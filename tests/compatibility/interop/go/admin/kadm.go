package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"kafkalite.interop/script"
)

func codeOf(err error) int16 {
	var coded *kerr.Error
	if errors.As(err, &coded) {
		return coded.Code
	}
	return 0
}

func byKadm(task script.Task) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	adm := kadm.NewClient(script.Must(kgo.NewClient(kgo.SeedBrokers(task.Bootstrap))))
	defer adm.Close()

	topics := kadm.TopicsSet{}
	topics.Add(task.Topic, 0)
	dirs := script.Must(adm.DescribeAllLogDirs(ctx, topics))
	tell("directories", len(dirs.Sorted()))
	for _, dir := range dirs.Sorted() {
		script.Check(dir.Err, "describe a directory")
		dir.Topics.Each(func(p kadm.DescribedLogDirPartition) { tell("size", p.Size) })
	}
	tell("reassignments", len(script.Must(adm.ListPartitionReassignments(ctx, topics)).Sorted()))

	broker := script.Must(adm.ListBrokers(ctx)).NodeIDs()[0]
	var here, elsewhere kadm.AlterPartitionAssignmentsReq
	here.Assign(task.Topic, 0, []int32{broker})
	elsewhere.Assign(task.Topic, 0, []int32{broker + 1})
	script.Check(script.Must(adm.AlterPartitionAssignments(ctx, here)).Error(), "reassign to where it is")
	tell("reassigned to nobody", script.Refusal(script.Must(adm.AlterPartitionAssignments(ctx, elsewhere)).Error()))
	elections := map[string]kadm.ElectLeadersHow{"preferred": kadm.ElectPreferredReplica, "unclean": kadm.ElectLiveReplica}
	topics.Add(task.Topic, 9)
	for kind, election := range elections {
		results := script.Must(adm.ElectLeaders(ctx, election, topics))
		tell(kind, []int16{codeOf(results[task.Topic][0].Err), codeOf(results[task.Topic][9].Err)})
	}
	topics = kadm.TopicsSet{}
	topics.Add(task.Topic, 0)

	deleted := script.Must(adm.DeleteOffsets(ctx, task.Group, topics))
	script.Check(deleted.Error(), "delete an offset")
	_, err := adm.DeleteOffsets(ctx, task.Group, topics)
	tell("deleted twice", script.Refusal(err))
	left := script.Must(adm.FetchOffsets(ctx, task.Group))
	tell("offsets left", len(left.Offsets().Sorted()))
}
