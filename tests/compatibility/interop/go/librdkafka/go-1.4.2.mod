module kafkalite.interop/librdkafka

go 1.23

require (
	github.com/confluentinc/confluent-kafka-go v1.4.2
	kafkalite.interop/script v0.0.0
)

replace kafkalite.interop/script => ../script
