"""The console: pages and a JSON API over HTTP, for a cluster whose client it is. Needs `kafkalite[console]`."""
