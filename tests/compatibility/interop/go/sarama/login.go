package main

import (
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
	"kafkalite.interop/script"
)

// logIn writes a record and reads it back.
func logIn(login script.Login) ([]string, error) {
	limit := time.Duration(login.LimitMs) * time.Millisecond
	config := configured(script.Task{})
	config.Producer.Return.Successes = true
	config.Metadata.Retry.Max = 0
	config.Net.DialTimeout, config.Net.ReadTimeout, config.Net.WriteTimeout = limit, limit, limit
	if strings.HasSuffix(login.Protocol, "SSL") {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, login.TLS()
	}
	if strings.HasPrefix(login.Protocol, "SASL") {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = login.Username, login.Password
		config.Net.SASL.TokenProvider = tokens(login.Token)
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{of: login.Mechanism} }
	}
	client, err := sarama.NewClient([]string{login.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	producer := script.Must(sarama.NewSyncProducerFromClient(client))
	message := &sarama.ProducerMessage{Topic: login.Topic, Value: sarama.StringEncoder(login.Value)}
	if _, _, err := producer.SendMessage(message); err != nil {
		return nil, err
	}
	consumer := script.Must(sarama.NewConsumerFromClient(client))
	partition, err := consumer.ConsumePartition(login.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	return []string{string((<-partition.Messages()).Value)}, nil
}

type tokens string

func (t tokens) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// scramClient is the conversation that sarama leaves to its user.
type scramClient struct {
	of           string
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	generator := scram.SHA256
	if c.of == sarama.SASLTypeSCRAMSHA512 {
		generator = scram.SHA512
	}
	client, err := generator.NewClient(user, password, authzID)
	if err == nil {
		c.conversation = client.NewConversation()
	}
	return err
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }
