"""The fetchers of a broker's followers: a connection to each leader, over which it asks for what their logs lack."""
