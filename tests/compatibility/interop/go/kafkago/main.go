// segmentio/kafka-go at work: Writer and Reader, the connection below them, the Client. See package script for how it
// is asked.
package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/segmentio/kafka-go"
	"kafkalite.interop/script"
)

var codecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func main() {
	verb, task := script.Asked()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch verb {
	case "produce":
		if task.Style == "conn" {
			write(ctx, task)
		} else {
			produce(ctx, task)
		}
	case "consume":
		consume(ctx, task)
	case "member":
		member(task)
	case "admin":
		administer(ctx, task)
	}
}

func message(r script.Record) kafka.Message {
	m := kafka.Message{Key: r.Key, Value: r.Value, Time: r.Time()}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	return m
}

// errand is what a message carries through the Writer: where it is to go, and where it went.
type errand struct{ partition, offset int }

func produce(ctx context.Context, task script.Task) {
	writer := &kafka.Writer{
		Addr: kafka.TCP(task.Bootstrap), Topic: task.Topic, Compression: codecs[task.Codec],
		RequiredAcks: kafka.RequiredAcks(task.Acks), BatchTimeout: 10 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(*errand).partition }),
		Completion: func(messages []kafka.Message, err error) {
			for _, m := range messages {
				m.WriterData.(*errand).offset = int(m.Offset)
			}
		},
	}
	var messages []kafka.Message
	for _, r := range script.Records() {
		m := message(r)
		m.WriterData = &errand{int(r.Partition), -1}
		messages = append(messages, m)
	}
	script.Check(writer.WriteMessages(ctx, messages...), "write")
	script.Check(writer.Close(), "close")
	for _, m := range messages {
		e := m.WriterData.(*errand)
		script.Tell(script.Record{Partition: int32(e.partition), Offset: int64(e.offset)})
	}
}

// write uses a connection to the leader, without Writer; all records of a partition are one batch.
func write(ctx context.Context, task script.Task) {
	first := map[int32]int64{}
	batches := map[int32][]kafka.Message{}
	records := script.Records()
	for _, r := range records {
		batches[r.Partition] = append(batches[r.Partition], message(r))
	}
	for partition, batch := range batches {
		conn := script.Must(kafka.DialLeader(ctx, "tcp", task.Bootstrap, task.Topic, int(partition)))
		script.Check(conn.SetRequiredAcks(task.Acks), "set acks")
		var codec kafka.CompressionCodec
		if task.Codec != "none" {
			codec = codecs[task.Codec].Codec()
		}
		_, _, offset, _, err := conn.WriteCompressedMessagesAt(codec, batch...)
		script.Check(err, "write")
		first[partition] = offset
		conn.Close()
	}
	for _, r := range records {
		script.Tell(script.Record{Partition: r.Partition, Offset: first[r.Partition]})
		first[r.Partition]++
	}
}

// consume reads each partition with a Reader of its own.
func consume(ctx context.Context, task script.Task) {
	conn := script.Must(kafka.DialContext(ctx, "tcp", task.Bootstrap))
	partitions := script.Must(conn.ReadPartitions(task.Topic))
	messages := make(chan kafka.Message)
	for _, partition := range partitions {
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{task.Bootstrap}, Topic: task.Topic, Partition: partition.ID, MaxWait: 100 * time.Millisecond,
		})
		go func() {
			for {
				m, err := reader.ReadMessage(ctx)
				if errors.Is(err, context.Canceled) {
					return // all is read, and the program about to end
				}
				script.Check(err, "read")
				messages <- m
			}
		}()
	}
	for range task.Count {
		script.Tell(seen(<-messages))
	}
}

func member(task script.Task) {
	balancers := map[string]kafka.GroupBalancer{
		"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{},
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{task.Bootstrap}, GroupID: task.Group, Topic: task.Topic, StartOffset: kafka.FirstOffset,
		GroupBalancers: []kafka.GroupBalancer{balancers[task.Style]}, MaxWait: 100 * time.Millisecond,
		HeartbeatInterval: 100 * time.Millisecond, SessionTimeout: 6 * time.Second, RebalanceTimeout: 6 * time.Second,
	})
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-script.AskedToLeave()
		stop()
	}()
	for {
		m, err := reader.FetchMessage(ctx)
		if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
			break
		}
		script.Check(err, "fetch")
		script.Tell(seen(m))
		script.Check(reader.CommitMessages(context.Background(), m), "commit")
	}
	script.Check(reader.Close(), "close")
}

func seen(m kafka.Message) script.Record {
	told := script.Record{
		Partition: int32(m.Partition), Offset: m.Offset, TimestampMs: m.Time.UnixMilli(), Key: m.Key, Value: m.Value,
	}
	for _, h := range m.Headers {
		told.Headers = append(told.Headers, script.Header{Key: h.Key, Value: h.Value})
	}
	return told
}
