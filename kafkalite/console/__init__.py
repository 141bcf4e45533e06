"""The console: pages and a JSON API over HTTP, for a cluster that it asks as a client. Needs `kafkalite[console]`."""
