"""Values of records decoded by a schema into typed columns: Avro, Protobuf, JSON."""
