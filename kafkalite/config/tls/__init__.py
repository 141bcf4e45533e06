"""TLS for listeners, for channels to other brokers and for commands: keys, trusted certificates, contexts."""
