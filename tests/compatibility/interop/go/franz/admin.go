package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"kafkalite.interop/script"
)

// administer tells a fact after each thing that kadm has done to the topic and group of the task and a new topic.
func administer(ctx context.Context, task script.Task) {
	cl := client(task)
	adm := kadm.NewClient(cl)
	defer adm.Close()
	created := task.Topic + "-new"
	tell := func(step string, is any) { script.Tell(map[string]any{"step": step, "is": is}) }

	tell("brokers", len(script.Must(adm.ListBrokers(ctx))))

	retention := "3600000"
	configs := map[string]*string{"retention.ms": &retention}
	script.Must(adm.CreateTopic(ctx, 2, 1, configs, created))
	_, err := adm.CreateTopic(ctx, 2, 1, nil, created)
	tell("created twice", script.Refusal(err))
	tell("retention.ms", config(ctx, adm, created, "retention.ms"))
	larger := "2000000"
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &larger}}
	if before(task, "v2.3") { // AlterConfigs sets the whole state
		state := append(change, kadm.AlterConfig{Name: "retention.ms", Value: &retention})
		responses := script.Must(adm.AlterTopicConfigsState(ctx, state, created))
		_, err := responses.On(created, nil)
		script.Check(err, "set the configs")
	} else {
		responses := script.Must(adm.AlterTopicConfigs(ctx, change, created))
		_, err := responses.On(created, nil)
		script.Check(err, "alter the configs")
	}
	tell("max.message.bytes", config(ctx, adm, created, "max.message.bytes"))
	if !before(task, "v1.0") {
		more := script.Must(adm.UpdatePartitions(ctx, 3, created))
		script.Check(more.Error(), "add a partition")
		partitions := 0
		for partitions < 3 && ctx.Err() == nil { // another broker learns of it a moment later
			fresh := kadm.NewClient(client(task)) // kgo answers from what it knew a moment ago
			partitions = len(script.Must(fresh.ListTopics(ctx, created))[created].Partitions)
			fresh.Close()
		}
		tell("partitions", partitions)
	}
	script.Must(adm.DeleteTopic(ctx, created))
	fresh := kadm.NewClient(client(task)) // kgo answers from what it knew a moment ago
	defer fresh.Close()
	tell("gone", !script.Must(fresh.ListTopics(ctx)).Has(created))

	offset := func(listed kadm.ListedOffsets, err error) int64 {
		script.Check(err, "list offsets")
		script.Check(listed.Error(), "list offsets")
		found, _ := listed.Lookup(task.Topic, 0)
		return found.Offset
	}
	tell("start", offset(adm.ListStartOffsets(ctx, task.Topic)))
	tell("end", offset(adm.ListEndOffsets(ctx, task.Topic)))
	tell("at the time", offset(adm.ListOffsetsAfterMilli(ctx, int64(task.Count), task.Topic)))
	cut := kadm.Offsets{}
	cut.AddOffset(task.Topic, 0, 3, -1)
	script.Check(script.Must(adm.DeleteRecords(ctx, cut)).Error(), "delete records")
	tell("start after the cut", offset(adm.ListStartOffsets(ctx, task.Topic)))

	commit := kadm.Offsets{}
	commit.AddOffset(task.Topic, 0, 7, -1)
	script.Check(adm.CommitAllOffsets(ctx, task.Group, commit), "commit")
	committed := script.Must(adm.FetchOffsets(ctx, task.Group))
	found, _ := committed.Lookup(task.Topic, 0)
	tell("committed", found.At)
	_, listed := script.Must(adm.ListGroups(ctx))[task.Group]
	tell("group listed", listed)
	tell("group state", script.Must(adm.DescribeGroups(ctx, task.Group))[task.Group].State)
	lags := script.Must(adm.Lag(ctx, task.Group))
	tell("lag", lags[task.Group].Lag.Total())
	if !before(task, "v1.1") {
		script.Must(adm.DeleteGroup(ctx, task.Group))
		_, listed = script.Must(adm.ListGroups(ctx))[task.Group]
		tell("group still listed", listed)
	}
}

func config(ctx context.Context, adm *kadm.Client, topic, name string) string {
	for _, config := range script.Must(script.Must(adm.DescribeTopicConfigs(ctx, topic)).On(topic, nil)).Configs {
		if config.Key == name {
			return config.MaybeValue()
		}
	}
	return "missing"
}
