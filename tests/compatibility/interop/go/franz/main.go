// franz-go at work: produce, consume, be a group member, administer; and while its broker misbehaves. See package script
// for how it is asked.
package main

import (
	"context"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"kafkalite.interop/script"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	switch os.Args[1] {
	case "faulted":
		script.AnswerEach((&faultedClient{}).obey, nameOf)
		return
	case "login":
		script.AnswerEach(logIn, error.Error)
		return
	}
	verb, task := script.Asked()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	switch verb {
	case "produce":
		produce(ctx, task)
	case "consume":
		consume(ctx, task)
	case "member":
		member(ctx, task)
	case "admin":
		administer(ctx, task)
	case "transact":
		transact(ctx, task)
	case "copy":
		carry(ctx, task)
	}
}

// client lets kgo speak its newest protocol, or that of an older Kafka.
func client(task script.Task, options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(task.Bootstrap))
	if task.Version != "" {
		options = append(options, kgo.MaxVersions(kversion.FromString(task.Version)))
	}
	return script.Must(kgo.NewClient(options...))
}

// produce writes as kgo does by default, idempotently, unless told otherwise.
func produce(ctx context.Context, task script.Task) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[task.Codec]),
		kgo.ProducerLinger(10 * time.Millisecond),
	}
	if !task.Idempotent {
		acks := map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}[task.Acks]
		options = append(options, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks))
	}
	cl := client(task, options...)
	defer cl.Close()
	var records []*kgo.Record
	for _, r := range script.Records() {
		record := &kgo.Record{Topic: task.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Time()}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		records = append(records, record)
	}
	results := cl.ProduceSync(ctx, records...)
	script.Check(results.FirstErr(), "produce")
	for _, record := range records {
		script.Tell(seen(record))
	}
}

func consume(ctx context.Context, task script.Task) {
	cl := client(task, kgo.ConsumeTopics(task.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	for count := 0; count < task.Count; {
		fetches := cl.PollFetches(ctx)
		script.Check(fetches.Err(), "fetch")
		fetches.EachRecord(func(record *kgo.Record) { script.Tell(seen(record)) })
		count += fetches.NumRecords()
	}
}

// member commits what it has told before it lets partitions go.
func member(ctx context.Context, task script.Task) {
	balancers := map[string]kgo.GroupBalancer{
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
		"range":              kgo.RangeBalancer(),
		"sticky":             kgo.StickyBalancer(),
		"roundrobin":         kgo.RoundRobinBalancer(),
	}
	balancing := kgo.ServerSideBalancer() // the protocol of KIP-848
	if balancer := balancers[task.Style]; balancer != nil {
		balancing = kgo.Balancers(balancer)
	}
	cl := client(task,
		kgo.ConsumerGroup(task.Group), kgo.ConsumeTopics(task.Topic), balancing,
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	polling, stop := context.WithCancel(ctx)
	go func() {
		<-script.AskedToLeave()
		stop()
	}()
	for polling.Err() == nil {
		fetches := cl.PollFetches(polling)
		for _, problem := range fetches.Errors() {
			if polling.Err() == nil {
				script.Check(problem.Err, "fetch")
			}
		}
		script.Check(cl.CommitUncommittedOffsets(ctx), "commit")
		fetches.EachRecord(func(record *kgo.Record) { script.Tell(seen(record)) })
		cl.AllowRebalance()
	}
	cl.CloseAllowingRebalance()
}

func seen(record *kgo.Record) script.Record {
	told := script.Record{
		Partition: record.Partition, Offset: record.Offset, TimestampMs: record.Timestamp.UnixMilli(),
		Key: record.Key, Value: record.Value,
	}
	for _, h := range record.Headers {
		told.Headers = append(told.Headers, script.Header{Key: h.Key, Value: h.Value})
	}
	return told
}

// before says whether kgo is to speak as of a Kafka older than this one.
func before(task script.Task, version string) bool {
	return task.Version != "" && task.Version < version
}
