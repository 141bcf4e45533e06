package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"kafkalite.interop/script"
)

// logIn writes a record and reads it back. Ping goes first: it tells an error, where the others go on trying.
func logIn(login script.Login) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(login.LimitMs)*time.Millisecond)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(login.Bootstrap), kgo.ConsumerGroup(login.Group), kgo.ConsumeTopics(login.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if strings.HasSuffix(login.Protocol, "SSL") {
		options = append(options, kgo.DialTLSConfig(login.TLS()))
	}
	if strings.HasPrefix(login.Protocol, "SASL") {
		options = append(options, kgo.SASL(mechanism(login)))
	}
	cl := script.Must(kgo.NewClient(options...))
	defer cl.Close()
	if err := cl.Ping(ctx); err != nil {
		return nil, err
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: login.Topic, Value: []byte(login.Value)}).FirstErr(); err != nil {
		return nil, err
	}
	var values []string
	for len(values) == 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			values = append(values, string(record.Value))
		}
	}
	return values, nil
}

func mechanism(login script.Login) sasl.Mechanism {
	switch login.Mechanism {
	case "PLAIN":
		return plain.Auth{User: login.Username, Pass: login.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: login.Username, Pass: login.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: login.Username, Pass: login.Password}.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: login.Token}.AsMechanism()
	}
}
