"""The requests of a test's broker: interceptors between its connections and its dispatcher, and recorded requests.
Imports what `testing` may."""
