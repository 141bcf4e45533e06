"""`kafkalite mirror`: topics of clusters copied to another one over the protocol, exactly once. Imports client."""
