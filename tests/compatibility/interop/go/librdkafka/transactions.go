package main

import (
	"context"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/kafka"
	"kafkalite.interop/script"
)

func transactional(task script.Task) *kafka.Producer {
	producer := script.Must(kafka.NewProducer(configured(task, kafka.ConfigMap{
		"transactional.id": task.TransactionalID, "transaction.timeout.ms": task.TimeoutMs, "linger.ms": 1,
		"message.timeout.ms": min(task.TimeoutMs, 15000),
	})))
	go func() {
		for range producer.Events() { // errors that belong to no message
		}
	}()
	return producer
}

// send waits for the acknowledgement of each message.
func send(producer *kafka.Producer, messages ...*kafka.Message) error {
	delivered := make(chan kafka.Event, len(messages))
	for _, message := range messages {
		if err := producer.Produce(message, delivered); err != nil {
			return err
		}
	}
	for range messages {
		if err := (<-delivered).(*kafka.Message).TopicPartition.Error; err != nil {
			return err
		}
	}
	return nil
}

// transact is a transactional producer that obeys a command at a time.
func transact(task script.Task) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	producer := transactional(task)
	script.Check(producer.InitTransactions(ctx), "initialise")
	script.Obey(func(command script.Command) error {
		place := kafka.TopicPartition{Topic: &command.Topic, Partition: command.Partition}
		switch command.Do {
		case "begin":
			return producer.BeginTransaction()
		case "send":
			return send(producer, &kafka.Message{TopicPartition: place, Value: []byte(command.Value)})
		case "offsets":
			place.Offset = kafka.Offset(command.Offset)
			group := script.Must(kafka.NewTestConsumerGroupMetadata(command.Group))
			return producer.SendOffsetsToTransaction(ctx, []kafka.TopicPartition{place}, group)
		case "commit":
			return producer.CommitTransaction(ctx)
		case "abort":
			return producer.AbortTransaction(ctx)
		}
		return fmt.Errorf("no command %s", command.Do)
	})
}

// carry copies from topic to topic; every third batch is sent in a transaction that is aborted first.
func carry(task script.Task) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	producer := transactional(task)
	script.Check(producer.InitTransactions(ctx), "initialise")
	consumer := script.Must(kafka.NewConsumer(configured(task, kafka.ConfigMap{
		"group.id": task.Group, "auto.offset.reset": "earliest", "enable.auto.commit": false,
		"session.timeout.ms": task.SessionMs, "heartbeat.interval.ms": 100, "fetch.wait.max.ms": 100,
	})))
	script.Check(consumer.Subscribe(task.Topic, nil), "subscribe")
	leaving := script.AskedToLeave()
	for turn := 0; ; {
		select {
		case <-leaving:
			return
		default:
		}
		batch := poll(consumer, task.Count)
		if len(batch) == 0 {
			continue
		}
		if turn%3 == 2 {
			carryBatch(ctx, producer, consumer, batch, task.Target)
			script.Check(producer.AbortTransaction(ctx), "abort")
		}
		carryBatch(ctx, producer, consumer, batch, task.Target)
		script.Check(producer.CommitTransaction(ctx), "commit")
		turn++
		script.Tell(map[string]int{"copied": len(batch)})
	}
}

func poll(consumer *kafka.Consumer, count int) []*kafka.Message {
	var batch []*kafka.Message
	for len(batch) < count {
		switch event := consumer.Poll(200).(type) {
		case *kafka.Message:
			script.Check(event.TopicPartition.Error, "consume")
			batch = append(batch, event)
		case nil:
			return batch
		}
	}
	return batch
}

func carryBatch(
	ctx context.Context, producer *kafka.Producer, consumer *kafka.Consumer, batch []*kafka.Message, target string,
) {
	script.Check(producer.BeginTransaction(), "begin")
	ends := map[int32]kafka.TopicPartition{}
	var messages []*kafka.Message
	for _, m := range batch {
		from := m.TopicPartition
		to := kafka.TopicPartition{Topic: &target, Partition: from.Partition}
		messages = append(messages, &kafka.Message{TopicPartition: to, Value: m.Value})
		ends[from.Partition] = kafka.TopicPartition{Topic: from.Topic, Partition: from.Partition, Offset: from.Offset + 1}
	}
	script.Check(send(producer, messages...), "send")
	var offsets []kafka.TopicPartition
	for _, end := range ends {
		offsets = append(offsets, end)
	}
	group := script.Must(consumer.GetConsumerGroupMetadata())
	script.Check(producer.SendOffsetsToTransaction(ctx, offsets, group), "send the offsets")
}
