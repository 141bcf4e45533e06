// IBM/sarama at work: produce, consume, be a group member, administer. See package script for how it is asked.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/IBM/sarama"
	"kafkalite.interop/script"
)

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func main() {
	if os.Args[1] == "login" {
		script.AnswerEach(logIn, error.Error)
		return
	}
	verb, task := script.Asked()
	switch verb {
	case "produce":
		produce(task)
	case "consume":
		consume(task)
	case "member":
		member(task)
	case "admin":
		administer(task)
	case "transact":
		transact(task)
	case "copy":
		carry(task)
	}
}

// configured is sarama's config as of a version of Kafka: it decides most request versions from that.
func configured(task script.Task) *sarama.Config {
	config := sarama.NewConfig()
	if task.Version == "newest" {
		config.Version = sarama.MaxVersion
	} else if task.Version != "" {
		config.Version = script.Must(sarama.ParseKafkaVersion(task.Version))
	}
	for _, setting := range task.Settings {
		if setting == "does not ask" {
			config.ApiVersionsRequest = false
		}
	}
	config.Metadata.AllowAutoTopicCreation = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = false
	return config
}

// produce writes through the synchronous producer, or through the asynchronous one in style "async".
func produce(task script.Task) {
	config := configured(task)
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[task.Codec]
	config.Producer.RequiredAcks = sarama.RequiredAcks(task.Acks)
	config.Producer.Flush.Frequency = 10 * time.Millisecond
	config.Producer.Return.Successes = true
	if task.Idempotent {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
	}
	var messages []*sarama.ProducerMessage
	for _, r := range script.Records() {
		message := &sarama.ProducerMessage{Topic: task.Topic, Partition: r.Partition, Timestamp: r.Time()}
		if r.Key != nil {
			message.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			message.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		messages = append(messages, message)
	}
	brokers := []string{task.Bootstrap}
	if task.Style == "async" {
		producer := script.Must(sarama.NewAsyncProducer(brokers, config))
		go func() {
			for _, message := range messages {
				producer.Input() <- message
			}
		}()
		for range messages {
			select {
			case <-producer.Successes():
			case problem := <-producer.Errors():
				script.Check(problem, "produce")
			}
		}
		script.Check(producer.Close(), "close")
	} else {
		producer := script.Must(sarama.NewSyncProducer(brokers, config))
		script.Check(producer.SendMessages(messages), "produce")
		script.Check(producer.Close(), "close")
	}
	for _, message := range messages {
		script.Tell(script.Record{Partition: message.Partition, Offset: message.Offset})
	}
}

func consume(task script.Task) {
	consumer := script.Must(sarama.NewConsumer([]string{task.Bootstrap}, configured(task)))
	messages := make(chan *sarama.ConsumerMessage)
	for _, number := range script.Must(consumer.Partitions(task.Topic)) {
		partition := script.Must(consumer.ConsumePartition(task.Topic, number, sarama.OffsetOldest))
		go func() {
			for message := range partition.Messages() {
				messages <- message
			}
		}()
	}
	for range task.Count {
		script.Tell(seen(<-messages))
	}
}

// reader is a member's handler: tells, marks and commits each message.
type reader struct{}

func (reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			session.Commit()
			script.Tell(seen(message))
		case <-session.Context().Done():
			return nil
		}
	}
}

func member(task script.Task) {
	config := configured(task)
	strategies := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky":     sarama.NewBalanceStrategySticky(),
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[task.Style]}
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	group := script.Must(sarama.NewConsumerGroup([]string{task.Bootstrap}, task.Group, config))
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-script.AskedToLeave()
		stop()
	}()
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{task.Topic}, reader{})
		if err != nil && !errors.Is(err, context.Canceled) {
			script.Check(err, "consume")
		}
	}
	script.Check(group.Close(), "close")
}

func seen(message *sarama.ConsumerMessage) script.Record {
	told := script.Record{
		Partition: message.Partition, Offset: message.Offset, TimestampMs: message.Timestamp.UnixMilli(),
		Key: message.Key, Value: message.Value,
	}
	for _, h := range message.Headers {
		told.Headers = append(told.Headers, script.Header{Key: string(h.Key), Value: h.Value})
	}
	return told
}
