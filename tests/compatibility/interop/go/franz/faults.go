package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"kafkalite.interop/script"
)

// faulted is what faulted_program.py tells a client whose broker misbehaves.
type faulted struct {
	Do              string `json:"do"`
	Bootstrap       string `json:"bootstrap"`
	Topic           string `json:"topic"`
	Value           string `json:"value"`
	Idempotent      bool   `json:"idempotent"`
	RequestMs       int    `json:"request_ms"`
	DeliveryMs      int    `json:"delivery_ms"`
	Group           string `json:"group"`
	Reset           string `json:"reset"`
	Count           int    `json:"count"`
	TransactionalID string `json:"transactional_id"`
}

// faultedClient obeys its commands, each but commit with a client of its own.
type faultedClient struct{ open *kgo.Client }

func (c *faultedClient) obey(command faulted) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch command.Do {
	case "produce":
		cl := script.Must(kgo.NewClient(command.producer()...))
		defer cl.Close()
		return nil, cl.ProduceSync(ctx, command.record()).FirstErr()
	case "consume":
		return command.consume(ctx)
	case "open":
		c.open = script.Must(kgo.NewClient(append(command.producer(), kgo.TransactionalID(command.TransactionalID))...))
		if err := c.open.BeginTransaction(); err != nil {
			return nil, err
		}
		return nil, c.open.ProduceSync(ctx, command.record()).FirstErr()
	case "commit":
		defer c.open.Close()
		return nil, c.open.EndTransaction(ctx, kgo.TryCommit)
	default:
		return nil, fmt.Errorf("no command %s", command.Do)
	}
}

func (f faulted) producer() []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(f.Bootstrap),
		kgo.RecordDeliveryTimeout(time.Duration(f.DeliveryMs) * time.Millisecond),
		kgo.ProduceRequestTimeout(time.Duration(f.RequestMs) * time.Millisecond),
		kgo.RequestTimeoutOverhead(time.Duration(f.RequestMs) * time.Millisecond),
	}
	if !f.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return options
}

func (f faulted) record() *kgo.Record {
	return &kgo.Record{Topic: f.Topic, Value: []byte(f.Value)}
}

// consume is the first values of a topic, different ones: a member that joins again may read some twice.
func (f faulted) consume(ctx context.Context) ([]string, error) {
	reset := kgo.NoResetOffset()
	if f.Reset == "earliest" {
		reset = kgo.NewOffset().AtStart()
	}
	cl := script.Must(kgo.NewClient(
		kgo.SeedBrokers(f.Bootstrap), kgo.ConsumerGroup(f.Group), kgo.ConsumeTopics(f.Topic),
		kgo.ConsumeResetOffset(reset), kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond),
	))
	defer cl.Close()
	var values []string
	seen := map[string]bool{}
	for len(values) < f.Count {
		fetches := cl.PollFetches(ctx)
		for _, record := range fetches.Records() {
			if value := string(record.Value); !seen[value] {
				seen[value] = true
				values = append(values, value)
			}
		}
		for _, problem := range fetches.Errors() {
			var lost *kgo.ErrGroupSession // kgo tells what keeps it from its group, and tries again
			if !errors.As(problem.Err, &lost) || errors.Is(problem.Err, kerr.GroupAuthorizationFailed) {
				return values, problem.Err
			}
		}
	}
	return values, nil
}

// nameOf is Kafka's name of an error, or the client's own words.
func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return err.Error()
}
