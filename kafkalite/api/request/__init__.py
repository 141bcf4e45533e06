"""What handlers share: context, fetch sessions, delayed produce, conversion. Imports coordinator, replication."""
