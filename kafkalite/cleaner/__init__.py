"""Log compaction. Nothing is here yet: topics with cleanup.policy=compact are kept whole."""
