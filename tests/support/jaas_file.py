"""A JAAS file with several contexts."""

from __future__ import annotations

FILE = """
// of Kafka's documentation
KafkaServer {
   org.apache.kafka.common.security.plain.PlainLoginModule required
      username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";
   org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="scram-secret";
};
sasl_ssl.KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="b"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="zk" password="zk-secret"; };
"""
