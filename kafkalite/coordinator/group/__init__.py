"""Groups of any kind: their values, committed offsets and records. Pure; imports protocol.records, protocol.codec."""
