"""A handler module per file of protocol/messages, same names. Imports api.request, coordinator, replication."""
