"""Pure decisions of the transactions of one transactional id. Imports protocol.records, protocol.codec, common."""
