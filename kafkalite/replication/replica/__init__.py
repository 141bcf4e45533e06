"""A replica of a partition, as leader and as follower: pure decisions about the ISR, the high watermark, truncation."""
