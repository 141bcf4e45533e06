// confluent-kafka-go before 2.0, with the librdkafka that it brings along: produce, consume, be a group member,
// administer. It keeps to what 1.4 already had. See package script for how it is asked.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/kafka"
	"kafkalite.interop/script"
)

func main() {
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
	case "version":
		_, version := kafka.LibraryVersion()
		script.Tell(map[string]string{"version": version})
	}
}

// configured takes librdkafka's own settings, "name=value", from the task.
func configured(task script.Task, more kafka.ConfigMap) *kafka.ConfigMap {
	more["bootstrap.servers"] = task.Bootstrap
	for _, setting := range task.Settings {
		name, value, _ := strings.Cut(setting, "=")
		more[name] = value
	}
	return &more
}

func produce(task script.Task) {
	producer := script.Must(kafka.NewProducer(configured(task, kafka.ConfigMap{
		"compression.codec": task.Codec, "enable.idempotence": task.Idempotent, "acks": task.Acks, "linger.ms": 20,
		"message.timeout.ms": 15000,
	})))
	records := script.Records()
	delivered := make(chan kafka.Event, len(records))
	for number, r := range records {
		m := &kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &task.Topic, Partition: r.Partition},
			Key:            r.Key, Value: r.Value, Timestamp: r.Time(), TimestampType: kafka.TimestampCreateTime, Opaque: number,
		}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		script.Check(producer.Produce(m, delivered), "produce")
	}
	for range records {
		m := (<-delivered).(*kafka.Message)
		script.Check(m.TopicPartition.Error, "deliver")
		records[m.Opaque.(int)].Offset = int64(m.TopicPartition.Offset)
	}
	producer.Close()
	for _, r := range records {
		script.Tell(r)
	}
}

func consume(task script.Task) {
	consumer := script.Must(kafka.NewConsumer(configured(task, kafka.ConfigMap{"group.id": "unused"})))
	metadata := script.Must(consumer.GetMetadata(&task.Topic, false, 10000))
	var assigned []kafka.TopicPartition
	for _, p := range metadata.Topics[task.Topic].Partitions {
		assigned = append(assigned, kafka.TopicPartition{Topic: &task.Topic, Partition: p.ID, Offset: kafka.OffsetBeginning})
	}
	script.Check(consumer.Assign(assigned), "assign")
	for range task.Count {
		script.Tell(seen(script.Must(consumer.ReadMessage(time.Minute))))
	}
	script.Check(consumer.Close(), "close")
}

func member(task script.Task) {
	consumer := script.Must(kafka.NewConsumer(configured(task, kafka.ConfigMap{
		"group.id": task.Group, "partition.assignment.strategy": task.Style, "auto.offset.reset": "earliest",
		"enable.auto.commit": false, "session.timeout.ms": 6000, "heartbeat.interval.ms": 100, "fetch.wait.max.ms": 100,
	})))
	script.Check(consumer.Subscribe(task.Topic, nil), "subscribe")
	leaving := script.AskedToLeave()
	for {
		select {
		case <-leaving:
			script.Check(consumer.Close(), "close")
			return
		default:
		}
		switch event := consumer.Poll(100).(type) {
		case *kafka.Message:
			script.Check(event.TopicPartition.Error, "consume")
			script.Must(consumer.CommitMessage(event))
			script.Tell(seen(event))
		case kafka.Error:
			script.Check(event, "poll")
		}
	}
}

func seen(m *kafka.Message) script.Record {
	told := script.Record{
		Partition: m.TopicPartition.Partition, Offset: int64(m.TopicPartition.Offset),
		TimestampMs: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value,
	}
	for _, h := range m.Headers {
		told.Headers = append(told.Headers, script.Header{Key: h.Key, Value: h.Value})
	}
	return told
}

// administer tells a fact after each thing that was done to the task's topic and group and a new topic.
func administer(task script.Task) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := script.Must(kafka.NewAdminClient(configured(task, kafka.ConfigMap{})))
	defer admin.Close()
	created := task.Topic + "-new"
	tell := func(step string, is any) { script.Tell(map[string]any{"step": step, "is": is}) }
	tell("brokers", len(script.Must(admin.GetMetadata(nil, true, 10000)).Brokers))

	wanted := kafka.TopicSpecification{
		Topic: created, NumPartitions: 2, ReplicationFactor: 1, Config: map[string]string{"retention.ms": "3600000"},
	}
	create := func() kafka.Error {
		return script.Must(admin.CreateTopics(ctx, []kafka.TopicSpecification{wanted}))[0].Error
	}
	if err := create(); err.Code() != kafka.ErrNoError {
		script.Check(err, "create")
	}
	tell("created twice", script.Refusal(create()))
	resource := kafka.ConfigResource{Type: kafka.ResourceTopic, Name: created}
	setting := func(name string) string {
		described := script.Must(admin.DescribeConfigs(ctx, []kafka.ConfigResource{resource}))
		return described[0].Config[name].Value
	}
	tell("retention.ms", setting("retention.ms"))
	changed := resource
	changed.Config = kafka.StringMapToConfigEntries(
		map[string]string{"retention.ms": "3600000", "max.message.bytes": "2000000"}, kafka.AlterOperationSet,
	)
	script.Must(admin.AlterConfigs(ctx, []kafka.ConfigResource{changed}))
	tell("max.message.bytes", setting("max.message.bytes"))
	more := kafka.PartitionsSpecification{Topic: created, IncreaseTo: 3}
	script.Must(admin.CreatePartitions(ctx, []kafka.PartitionsSpecification{more}))
	partitions := 0
	for partitions < more.IncreaseTo && ctx.Err() == nil { // another broker learns of it a moment later
		partitions = len(script.Must(admin.GetMetadata(&created, false, 10000)).Topics[created].Partitions)
	}
	tell("partitions", partitions)
	script.Must(admin.DeleteTopics(ctx, []string{created}))
	_, there := script.Must(admin.GetMetadata(nil, true, 10000)).Topics[created]
	tell("gone", !there)

	consumer := script.Must(kafka.NewConsumer(configured(task, kafka.ConfigMap{"group.id": task.Group})))
	defer consumer.Close()
	low, high, err := consumer.QueryWatermarkOffsets(task.Topic, 0, 10000)
	script.Check(err, "query the watermarks")
	tell("start", low)
	tell("end", high)
	at := []kafka.TopicPartition{{Topic: &task.Topic, Offset: kafka.Offset(task.Count)}}
	tell("at the time", script.Must(consumer.OffsetsForTimes(at, 10000))[0].Offset)
	script.Must(consumer.CommitOffsets([]kafka.TopicPartition{{Topic: &task.Topic, Offset: 7}}))
	committed := script.Must(consumer.Committed([]kafka.TopicPartition{{Topic: &task.Topic}}, 10000))
	tell("committed", committed[0].Offset)
}
