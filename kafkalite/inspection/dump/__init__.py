"""`kafkalite log dump`, in the words of Kafka's kafka-dump-log. Imports inspection.files."""
