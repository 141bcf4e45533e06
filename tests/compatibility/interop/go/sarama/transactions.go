package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"kafkalite.interop/script"
)

// turns lets one claim at a time have the transaction.
var turns sync.Mutex

func transactional(task script.Task) sarama.AsyncProducer {
	config := configured(task)
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = task.TransactionalID
	config.Producer.Transaction.Timeout = time.Duration(task.TimeoutMs) * time.Millisecond
	config.Net.MaxOpenRequests = 1
	return script.Must(sarama.NewAsyncProducer([]string{task.Bootstrap}, config))
}

// send waits for the acknowledgement of each record.
func send(producer sarama.AsyncProducer, messages ...*sarama.ProducerMessage) error {
	go func() {
		for _, message := range messages {
			producer.Input() <- message
		}
	}()
	var failed error
	for range messages {
		select {
		case <-producer.Successes():
		case problem := <-producer.Errors():
			failed = problem
		}
	}
	return failed
}

// transact is a transactional producer that obeys a command at a time.
func transact(task script.Task) {
	producer := transactional(task)
	script.Obey(func(command script.Command) error {
		switch command.Do {
		case "begin":
			return producer.BeginTxn()
		case "send":
			return send(producer, &sarama.ProducerMessage{
				Topic: command.Topic, Partition: command.Partition, Value: sarama.StringEncoder(command.Value),
			})
		case "offsets":
			offset := &sarama.PartitionOffsetMetadata{Partition: command.Partition, Offset: command.Offset}
			offsets := map[string][]*sarama.PartitionOffsetMetadata{command.Topic: {offset}}
			return producer.AddOffsetsToTxn(offsets, command.Group)
		case "commit":
			return producer.CommitTxn()
		case "abort":
			return producer.AbortTxn()
		}
		return fmt.Errorf("no command %s", command.Do)
	})
}

// carrier is a member's handler that copies batches: every third one in a transaction that is aborted first.
type carrier struct {
	producer sarama.AsyncProducer
	task     script.Task
	turn     int
}

func (c *carrier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *carrier) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (c *carrier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	var batch []*sarama.ConsumerMessage
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			batch = append(batch, message)
			if len(batch) < c.task.Count {
				continue
			}
		case <-session.Context().Done():
			return nil
		}
		turns.Lock()
		if c.turn%3 == 2 {
			c.carry(session, batch)
			script.Check(c.producer.AbortTxn(), "abort")
		}
		c.carry(session, batch)
		script.Check(c.producer.CommitTxn(), "commit")
		c.turn++
		turns.Unlock()
		script.Tell(map[string]int{"copied": len(batch)})
		batch = nil
	}
}

func (c *carrier) carry(session sarama.ConsumerGroupSession, batch []*sarama.ConsumerMessage) {
	script.Check(c.producer.BeginTxn(), "begin")
	var messages []*sarama.ProducerMessage
	for _, message := range batch {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: c.task.Target, Partition: message.Partition, Value: sarama.ByteEncoder(message.Value),
		})
	}
	script.Check(send(c.producer, messages...), "send")
	group := sarama.NewConsumerGroupMetadataFromSession(session, c.task.Group, nil)
	script.Check(c.producer.AddMessageToTxnWithGroupMetadata(batch[len(batch)-1], group, nil), "add the offsets")
}

func carry(task script.Task) {
	producer := transactional(task)
	config := configured(task)
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Group.Session.Timeout = time.Duration(task.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Enable = false
	group := script.Must(sarama.NewConsumerGroup([]string{task.Bootstrap}, task.Group, config))
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-script.AskedToLeave()
		stop()
	}()
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{task.Topic}, &carrier{producer: producer, task: task})
		if err != nil && !errors.Is(err, context.Canceled) {
			script.Check(err, "consume")
		}
	}
	script.Check(group.Close(), "close")
}
