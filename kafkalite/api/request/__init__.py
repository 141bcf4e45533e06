"""Parts that handlers share: services, context, admission, fetch sessions. Imports coordinator and replication."""
