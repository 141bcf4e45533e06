"""A broker alone or in a cluster: registration, adoption, fencing, requests to others. Imports coordinator, zk."""
