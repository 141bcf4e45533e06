package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"kafkalite.interop/script"
)

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

	deleted := script.Must(adm.DeleteOffsets(ctx, task.Group, topics))
	script.Check(deleted.Error(), "delete an offset")
	_, err := adm.DeleteOffsets(ctx, task.Group, topics)
	tell("deleted twice", script.Refusal(err))
	left := script.Must(adm.FetchOffsets(ctx, task.Group))
	tell("offsets left", len(left.Offsets().Sorted()))
}
