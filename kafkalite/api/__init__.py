"""What the broker does: one handler module per family of requests, named as its file in `protocol.messages`."""
