package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"kafkalite.interop/script"
)

func transactional(task script.Task, options ...kgo.Opt) []kgo.Opt {
	return append(options,
		kgo.TransactionalID(task.TransactionalID),
		kgo.TransactionTimeout(time.Duration(task.TimeoutMs)*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
}

// transact is a transactional producer that obeys a command at a time.
func transact(ctx context.Context, task script.Task) {
	cl := client(task, transactional(task)...)
	defer cl.Close()
	_, _, err := cl.ProducerID(ctx)
	script.Check(err, "initialise")
	script.Obey(func(command script.Command) error {
		switch command.Do {
		case "begin":
			return cl.BeginTransaction()
		case "send":
			record := &kgo.Record{Topic: command.Topic, Partition: command.Partition, Value: []byte(command.Value)}
			return cl.ProduceSync(ctx, record).FirstErr()
		case "offsets":
			return addOffset(ctx, cl, task, command)
		case "commit":
			return cl.EndTransaction(ctx, kgo.TryCommit)
		case "abort":
			return cl.EndTransaction(ctx, kgo.TryAbort)
		}
		return fmt.Errorf("no command %s", command.Do)
	})
}

// addOffset does by hand what a GroupTransactSession does for a member of the group.
func addOffset(ctx context.Context, cl *kgo.Client, task script.Task, command script.Command) error {
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = task.TransactionalID, id, epoch, command.Group
	added, err := add.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Partition, partition.Offset = command.Partition, command.Offset
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = command.Topic
	topic.Partitions = append(topic.Partitions, partition)
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = task.TransactionalID, id, epoch, command.Group
	commit.Topics = append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
}

// carry copies from topic to topic. Every third batch is sent in a transaction that is aborted first; the session goes
// back to its beginning then.
func carry(ctx context.Context, task script.Task) {
	options := transactional(task,
		kgo.SeedBrokers(task.Bootstrap), kgo.ConsumerGroup(task.Group), kgo.ConsumeTopics(task.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(time.Duration(task.SessionMs)*time.Millisecond), kgo.HeartbeatInterval(100*time.Millisecond), kgo.RequireStableFetchOffsets(),
	)
	session := script.Must(kgo.NewGroupTransactSession(options...))
	defer session.Close()
	leaving := script.AskedToLeave()
	for turn := 0; ; turn++ {
		select {
		case <-leaving:
			return
		default:
		}
		fetches := session.PollRecords(ctx, task.Count)
		script.Check(fetches.Err(), "fetch")
		script.Check(session.Begin(), "begin")
		fetches.EachRecord(func(r *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: task.Target, Partition: r.Partition, Value: r.Value}, nil)
		})
		if turn%4 == 2 {
			script.Check(session.Client().Flush(ctx), "flush")
		}
		committed := script.Must(session.End(ctx, kgo.TransactionEndTry(turn%4 != 2)))
		if committed {
			script.Tell(map[string]int{"copied": fetches.NumRecords()})
		}
	}
}
