"""Parts that handlers share: endpoints, context, admission, fetch sessions. Imports coordinator and replication."""
