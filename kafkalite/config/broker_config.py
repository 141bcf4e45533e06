"""The broker's configuration (server.properties): every setting that kafkalite honours, one line each.

Names, types, defaults and bounds are Kafka 3.9's; the few defaults that differ say so. The default of a topic's setting
is declared with that (`of_topic`). The command line, DescribeConfigs and config/server.properties are derived from these
lines.
Source: kafka.server.KafkaConfig, kafka.server.ConfigHelper, org.apache.kafka.server.config.QuotaConfigs.
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Self

from kafkalite.common.errors import ConfigError
from kafkalite.config import setting_checks
from kafkalite.config.group_settings import StreamsSettings, group_conflict, share_conflict, streams_conflict
from kafkalite.config.listeners import (
    PREFIX,
    ListenerConfig,
    base_name,
    base_name_for_any,
    parse_host_limits,
    parse_listeners,
    parse_metrics_listener,
    parse_protocol_map,
    prefixes,
    resolve_listeners,
)
from kafkalite.config.settings import (
    INT_MAX,
    LONG_MAX,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Setting,
    boolean,
    double,
    integer,
    long,
    password,
    section,
    short,
    string,
    words,
)
from kafkalite.config.topic_config import RECORD_VALIDATIONS, TopicConfig, of_topic, topic_conflict

_DAY_MS = 86_400_000
_MIB = 1 << 20


class BrokerConfig(StreamsSettings):
    """The configuration of one broker: `BrokerConfig()` has the defaults, `load` takes an operator's properties.

    `explicit`: the properties that were given, as text. `dynamic` and `dynamic_default`: changed while running, for this
    broker and for all of them. `warnings`: one line per property that has no effect here.
    """

    __slots__ = ("dynamic", "dynamic_default", "explicit", "warnings")
    explicit: Mapping[str, str]
    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    warnings: tuple[str, ...]

    # fmt: off
    _identity = section("Identity and data")
    broker_id: int = integer(0, "The id of this broker in its cluster. With zookeeper.connect the default is -1: the id in meta.properties, or a generated one.", at_least=-1, sample="0")
    broker_id_generation_enable: bool = boolean(True, "With zookeeper.connect, generate an id for a broker that has none.")
    reserved_broker_max_id: int = integer(1000, "Highest broker.id that may be configured; generated ids are above it.", at_least=0)
    node_id: int = integer(0, "KRaft's name for broker.id; both must be equal if both are set.", at_least=-1)
    broker_rack: str | None = string(None, "The rack of this broker, as clients see it in Metadata.")
    log_dirs: str | None = string(None, "The data directories, with commas between them (Kafka's own default: /tmp/kafka-logs).", convert=setting_checks.parse_directories, sample="kafkalite-data")
    log_dir: str = string("kafkalite-data", "One data directory, used when log.dirs is not set.", convert=setting_checks.parse_directories)

    _listeners = section("Listeners and connections")
    listeners: tuple[ListenerConfig, ...] = string("PLAINTEXT://127.0.0.1:9092", "Where to accept connections; an empty host is every interface (Kafka's default).", convert=parse_listeners, sample="PLAINTEXT://127.0.0.1:9092", dynamic=True)
    advertised_listeners: tuple[ListenerConfig, ...] = string("", "Addresses for clients to connect to; unset, a client gets the address that it connected to.", convert=parse_listeners, unset=True, dynamic=True)
    listener_security_protocol_map: Mapping[str, str] = string("SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", "The security protocol of each listener's name.", convert=parse_protocol_map, dynamic=True)
    inter_broker_listener_name: str | None = string(None, "The listener that other brokers use.")
    num_network_threads: int = integer(3, "Processors that share the connections; a change while running counts from the next start on.", at_least=1, dynamic=True)
    # Kafka has 100 KiB. A larger one is faster for large records and for clients that throw bytes away, and slower for
    # librdkafka with small records, whose two threads then get in each other's way (docs/performance.md)
    socket_send_buffer_bytes: int = integer(163_840, "Send buffer of a socket; -1 leaves it to the system.", at_least=-1)
    socket_receive_buffer_bytes: int = integer(102_400, "Receive buffer of a socket; -1 leaves it to the system.", at_least=-1)
    socket_request_max_bytes: int = integer(100 * _MIB, "Largest request; a larger one closes its connection.", at_least=1)
    socket_listen_backlog_size: int = integer(50, "Connections that may wait to be accepted.", at_least=1)
    queued_max_request_bytes: int = long(-1, "Bytes that all incomplete large requests may hold: beyond it, connections that are idle or whose request exceeds 4 MiB are closed; -1 is 128 MiB.")
    connections_max_idle_ms: int = long(600_000, "An idle connection is closed after this time; negative is never.")

    _zookeeper = section("ZooKeeper")
    zookeeper_connect: str | None = string(None, "The servers of the cluster's ZooKeeper, perhaps with a root node: host:port,host:port/chroot. Unset, this broker runs standalone and keeps its metadata in a file.", convert=setting_checks.parse_zookeeper_connect)
    zookeeper_session_timeout_ms: int = integer(18_000, "The session of a broker from which ZooKeeper receives nothing for this long expires.", at_least=1)
    zookeeper_connection_timeout_ms: int | None = integer(None, "How long a start waits for ZooKeeper; unset, zookeeper.session.timeout.ms.", at_least=1)
    zookeeper_set_acl: bool = boolean(False, "Restrict changes of the znodes that this broker writes to clients with its credentials.")
    zookeeper_max_in_flight_requests: int = integer(10, "Requests that may be in flight to ZooKeeper at a time.", at_least=1)
    zookeeper_digest: str | None = password(None, "user:password of ZooKeeper's digest scheme (kafkalite's own setting).")
    zookeeper_sasl_mechanism: str = string("DIGEST-MD5", "The SASL mechanism at ZooKeeper: DIGEST-MD5, or GSSAPI with an existing ticket (kafkalite's own setting; Kafka has a JAAS file).", one_of=("DIGEST-MD5", "GSSAPI"))
    zookeeper_sasl_username: str | None = string(None, "The user for SASL; unset with DIGEST-MD5, the broker does not log in (kafkalite's own setting).")
    zookeeper_sasl_password: str | None = password(None, "The password for it (kafkalite's own setting).")
    zookeeper_ssl_client_enable: bool = boolean(False, "Speak TLS with ZooKeeper.")
    zookeeper_ssl_keystore_location: str | None = string(None, "File with this broker's key and certificates for ZooKeeper.")
    zookeeper_ssl_keystore_password: str | None = password(None, "The password of that file, or of the key in a PEM file.")
    zookeeper_ssl_keystore_type: str | None = string(None, "PEM, PKCS12 or JKS (which stands for PEM or PKCS12 here, by the file's content); unset, by the end of its name, else PEM.", convert=setting_checks.parse_store_type)
    zookeeper_ssl_truststore_location: str | None = string(None, "File with the authorities that may sign ZooKeeper's certificate; unset, the system's.")
    zookeeper_ssl_truststore_password: str | None = password(None, "The password of that file, if it needs one.")
    zookeeper_ssl_truststore_type: str | None = string(None, "As zookeeper.ssl.keystore.type.", convert=setting_checks.parse_store_type)
    zookeeper_ssl_protocol: str = string("TLSv1.2", "The lowest version of TLS, when zookeeper.ssl.enabled.protocols is unset (in Kafka the only one).", one_of=("TLSv1.2", "TLSv1.3"))
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = words((), "Versions of TLS that may be used.", one_of=("TLSv1.2", "TLSv1.3"), unset=True)
    zookeeper_ssl_cipher_suites: tuple[str, ...] = words((), "Cipher suites that may be used, by their IANA names; empty leaves it to OpenSSL.", unset=True)
    zookeeper_ssl_endpoint_identification_algorithm: str = string("HTTPS", "Empty: the host name in ZooKeeper's certificate is not verified.", convert=setting_checks.parse_endpoint_identification)
    zookeeper_clientCnxnSocket: str | None = string(None, "Java's class for it; kafkalite needs none.")

    _topics = section("Topics")
    auto_create_topics_enable: bool = boolean(True, "Create a topic when a client asks for one that does not exist.")
    delete_topic_enable: bool = boolean(True, "Let clients delete topics.")
    num_partitions: int = integer(1, "Partitions of a new topic.", at_least=1, sample="1")
    default_replication_factor: int = integer(1, "Replicas of a new topic.", at_least=1)
    min_insync_replicas: int = of_topic("min.insync.replicas")
    unclean_leader_election_enable: bool = of_topic("unclean.leader.election.enable")
    message_max_bytes: int = of_topic("max.message.bytes")
    compression_type: str = of_topic("compression.type")
    compression_gzip_level: int = of_topic("compression.gzip.level")
    compression_lz4_level: int = of_topic("compression.lz4.level")
    compression_zstd_level: int = of_topic("compression.zstd.level")

    _log = section("The log")
    log_segment_bytes: int = of_topic("segment.bytes")
    log_roll_ms: int | None = long(None, "Age at which a new segment begins; unset, log.roll.hours.", at_least=1, dynamic=True)
    log_roll_hours: int = integer(168, "The same in hours.", at_least=1)
    log_roll_jitter_ms: int | None = long(None, "Random part taken off the age; unset, log.roll.jitter.hours.", at_least=0, dynamic=True)
    log_roll_jitter_hours: int = integer(0, "The same in hours.", at_least=0)
    log_index_size_max_bytes: int = of_topic("segment.index.bytes", "Largest size of a segment's index.")
    log_index_interval_bytes: int = of_topic("index.interval.bytes")
    log_preallocate: bool = of_topic("preallocate")
    log_message_timestamp_type: str = of_topic("message.timestamp.type")
    log_message_timestamp_before_max_ms: int = of_topic("message.timestamp.before.max.ms")
    log_message_timestamp_after_max_ms: int = of_topic("message.timestamp.after.max.ms")
    log_message_timestamp_difference_max_ms: int = of_topic("message.timestamp.difference.max.ms", "Old name for both of the above.")
    log_message_downconversion_enable: bool = of_topic("message.downconversion.enable")
    log_flush_interval_messages: int = of_topic("flush.messages", "Records of a log after which it is fsynced.")
    log_flush_interval_ms: int | None = long(None, "Time after which a log with unsynced records is fsynced; unset, log.flush.scheduler.interval.ms.", dynamic=True)
    log_flush_scheduler_interval_ms: int = long(LONG_MAX, "How often to check for logs that are due for an fsync.")
    log_flush_offset_checkpoint_interval_ms: int = integer(60_000, "How often recovery points are written down.", at_least=0)
    log_flush_start_offset_checkpoint_interval_ms: int = integer(60_000, "How often start offsets are written down.", at_least=0)
    replica_high_watermark_checkpoint_interval_ms: int = long(5_000, "How often high watermarks are written down.")
    replica_lag_time_max_ms: int = long(30_000, "A follower that has not caught up for this long is not in sync.", at_least=1)
    num_recovery_threads_per_data_dir: int = integer(1, "Threads of each data directory that check logs after an unclean stop.", at_least=1, dynamic=True)

    _retention = section("Retention and compaction")
    log_cleanup_policy: tuple[str, ...] = of_topic("cleanup.policy")
    log_retention_ms: int | None = long(None, "Time that a record is kept, -1 is forever; unset, log.retention.minutes.", at_least=-1, dynamic=True)
    log_retention_minutes: int | None = integer(None, "The same in minutes; unset, log.retention.hours.", at_least=-1)
    log_retention_hours: int = integer(168, "The same in hours.", at_least=-1)
    log_retention_bytes: int = of_topic("retention.bytes")
    log_retention_check_interval_ms: int = long(300_000, "How often to check for segments that retention may delete.", at_least=1)
    log_segment_delete_delay_ms: int = of_topic("file.delete.delay.ms")
    log_cleaner_delete_retention_ms: int = of_topic("delete.retention.ms")
    log_cleaner_min_compaction_lag_ms: int = of_topic("min.compaction.lag.ms")
    log_cleaner_max_compaction_lag_ms: int = of_topic("max.compaction.lag.ms")
    log_cleaner_min_cleanable_ratio: float = of_topic("min.cleanable.dirty.ratio")

    log_cleaner_enable: bool = boolean(True, "Compact the topics whose cleanup.policy says so, __consumer_offsets among them; without it they grow.")
    log_cleaner_threads: int = integer(1, "Worker processes of the cleaner; each compacts one log at a time.", at_least=1, dynamic=True)
    log_cleaner_backoff_ms: int = long(15_000, "Pause before the next check for filthy logs when none is due.", at_least=0, dynamic=True)
    log_cleaner_dedupe_buffer_size: int = long(128 * _MIB, "Bytes of all offset maps together; a key takes 24.", dynamic=True)
    log_cleaner_io_buffer_load_factor: float = double(0.9, "Share of an offset map that may be filled.", at_least=0, at_most=1, dynamic=True)
    log_cleaner_io_buffer_size: int = integer(512 * 1024, "Bytes of all read buffers together; each process has at least 8 MiB.", at_least=0, dynamic=True)
    log_cleaner_io_max_bytes_per_second: float = double(sys.float_info.max, "Bytes per second that all cleaners together may read and write.", at_least=1, dynamic=True)

    _leaders = section("Leaders")
    auto_leader_rebalance_enable: bool = boolean(True, "Give the leadership back to the preferred replica once it is in sync again.")
    leader_imbalance_check_interval_seconds: int = long(300, "How often the controller checks for brokers that lead too few of their partitions.", at_least=1)
    leader_imbalance_per_broker_percentage: int = integer(10, "Percentage of a broker's preferred partitions that other brokers may lead before it gets them back.")
    controlled_shutdown_enable: bool = boolean(True, "Hand leaderships over before a stop.")
    controlled_shutdown_max_retries: int = integer(3, "How many pauses a stop waits for other brokers to lead.", at_least=0)
    controlled_shutdown_retry_backoff_ms: int = long(5_000, "Length of such a pause; the stop continues as soon as others lead.", at_least=0)

    _fetch = section("Fetching")
    fetch_max_bytes: int = integer(55 * _MIB, "Largest response to a fetch.", at_least=1024)
    max_incremental_fetch_session_cache_slots: int = integer(1000, "Fetch sessions in the cache.", at_least=0)
    max_request_partition_size_limit: int = integer(2_000, "Partitions in one answer of DescribeTopicPartitions.", at_least=1)

    _replication = section("Replication")
    num_replica_fetchers: int = integer(1, "Connections to each leader over which this broker's followers fetch.", at_least=1, dynamic=True)
    replica_fetch_wait_max_ms: int = integer(500, "How long a leader lets a follower's fetch wait for records.")
    replica_fetch_min_bytes: int = integer(1, "Bytes for which such a fetch waits.")
    replica_fetch_max_bytes: int = integer(_MIB, "Bytes of one partition in a response to a follower; a larger first batch is returned nevertheless.", at_least=0)
    replica_fetch_response_max_bytes: int = integer(10 * _MIB, "Bytes of all partitions in a response to a follower.", at_least=0)
    replica_fetch_backoff_ms: int = integer(1_000, "How long a follower waits after an error of its leader.", at_least=0)
    replica_socket_timeout_ms: int = integer(30_000, "Time after which a follower closes its connection to a leader that does not answer; more than replica.fetch.wait.max.ms.")
    replica_socket_receive_buffer_bytes: int = integer(-1, "Receive buffer of a follower's socket; -1 leaves it to the system, with which a follower catches up twice as fast as with Kafka's 65536.", at_least=-1)
    leader_replication_throttled_rate: int = long(LONG_MAX, "Bytes per second to followers of leader.replication.throttled.replicas that are not in sync.", at_least=0, dynamic=True, dynamic_only=True)
    follower_replication_throttled_rate: int = long(LONG_MAX, "Bytes per second from the leaders of follower.replication.throttled.replicas while not in sync.", at_least=0, dynamic=True, dynamic_only=True)
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(LONG_MAX, "Bytes per second that moves between data directories may copy.", at_least=1, dynamic=True, dynamic_only=True)
    num_replica_alter_log_dirs_threads: int | None = integer(None, "Moves between data directories at a time; the number of directories unless it is set.", at_least=1)
    replica_selector_class: str | None = string(None, "Names the replica from which a consumer is to read: RackAwareReplicaSelector prefers an in-sync one in its rack (broker.rack, client.rack).", convert=setting_checks.parse_replica_selector)
    replication_quota_window_num: int = integer(11, "Windows over which these rates are measured.", at_least=1)
    replication_quota_window_size_seconds: int = integer(1, "Length of such a window.", at_least=1)

    _producers = section("Producers")
    kafkalite_record_validation: str = string("records", "What is checked inside a producer's batch: 'records' its frame and the structure of its records, 'frames' only that it can be decompressed, 'none' nothing (kafkalite's own setting; Kafka checks records).", one_of=RECORD_VALIDATIONS)
    producer_id_expiration_ms: int = integer(_DAY_MS, "How long the state of an inactive producer id is kept.", at_least=1, dynamic=True)
    producer_id_expiration_check_interval_ms: int = integer(600_000, "How often to check for expired producer ids.", at_least=1)

    _transactions = section("Transactions")
    transaction_max_timeout_ms: int = integer(900_000, "Longest transaction timeout that a producer may ask for.", at_least=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(10_000, "How often to check for transactions that exceed their timeout.", at_least=1)
    transaction_partition_verification_enable: bool = boolean(True, "Accept a transaction's first records in a partition only after the coordinator has confirmed that the partition is part of it.", dynamic=True)
    transactional_id_expiration_ms: int = integer(7 * _DAY_MS, "How long an unused transactional id is kept.", at_least=1)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(3_600_000, "How often to check for expired transactional ids.", at_least=1)
    transaction_state_log_num_partitions: int = integer(50, "Partitions of __transaction_state.", at_least=1)
    transaction_state_log_replication_factor: int = short(3, "Replicas of __transaction_state; unset, no more than there are brokers when it is created.", at_least=1)
    transaction_state_log_min_isr: int = integer(2, "In-sync replicas that an append to it needs; unset, no more than it has replicas.", at_least=1)
    transaction_state_log_segment_bytes: int = integer(100 * _MIB, "Size at which a segment of __transaction_state ends.", at_least=1)
    transaction_state_log_load_buffer_size: int = integer(5 * _MIB, "Bytes read at a time when transactions are loaded.", at_least=1)

    _authorization = section("Authorization")
    authorizer_class_name: str = string("", "kafka.security.authorizer.AclAuthorizer: access control lists decide which operations are allowed; empty: every operation is.", convert=setting_checks.parse_authorizer)
    super_users: tuple[str, ...] = string("", "Principals that may do everything: User:alice;User:bob.", convert=setting_checks.parse_principals, dynamic_only=True)
    allow_everyone_if_no_acl_found: bool = boolean(False, "Whether every principal may use a resource that has no access control list.", dynamic_only=True)

    _metrics = section("Metrics and console")
    console_listener: str = string("", "HOST:PORT of the console, such as 127.0.0.1:9080; empty disables it (kafkalite's own setting).", convert=parse_metrics_listener)
    console_write: bool = boolean(False, "Whether users of the console may change topics, groups and records, as far as access control lists let them (kafkalite's own setting).")
    console_command_config: str = string("", "A properties file of a Kafka client with which the console connects to this broker, for TLS (kafkalite's own setting).")
    metrics_listener: str = string("", "HOST:PORT at which Prometheus scrapes /metrics, such as 127.0.0.1:9404; empty disables it (kafkalite's own setting).", convert=parse_metrics_listener)
    telemetry_max_bytes: int = integer(1_048_576, "Largest push of metrics by a client (KIP-714), as sent.", at_least=1)

    _limits = section("Quotas and limits of connections")
    max_connections: int = integer(INT_MAX, "Connections at a time; others wait to be accepted. The inter-broker listener may exceed it if there are other listeners.", at_least=0, dynamic=True)
    max_connections_per_ip: int = integer(INT_MAX, "Connections at a time from one address; others are closed at once.", at_least=0, dynamic=True)
    max_connections_per_ip_overrides: Mapping[str, int] = string("", "Other limits for some addresses: host:count,...", convert=parse_host_limits, dynamic=True)
    max_connection_creation_rate: int = integer(INT_MAX, "New connections in a second; others wait to be accepted.", at_least=0, dynamic=True)
    quota_window_num: int = integer(11, "Windows over which the rates of clients and connections are measured.", at_least=1)
    quota_window_size_seconds: int = integer(1, "Length of such a window.", at_least=1)
    controller_quota_window_num: int = integer(11, "Windows whose partitions a client may create or delete at once.", at_least=1)
    controller_quota_window_size_seconds: int = integer(1, "Length of such a window.", at_least=1)
    # fmt: on

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        texts = {s.name: s.format(values[s.attribute]) for s in type(self).settings if s.attribute in values}
        explicit = {name: text for name, text in texts.items() if text is not None}
        self._remember(explicit=explicit, dynamic={}, dynamic_default={}, warnings=())

    def _remember(self, **sources: Any) -> None:
        for name, value in sources.items():
            object.__setattr__(self, name, value)

    @property
    def data_dirs(self) -> tuple[str, ...]:
        """The data directories, in the given order."""
        return tuple((self.log_dirs or self.log_dir).split(","))

    @classmethod
    def load(
        cls,
        properties: Mapping[str, str],
        dynamic: Mapping[str, str] | None = None,
        dynamic_default: Mapping[str, str] | None = None,
    ) -> BrokerConfig:
        """The configuration of an operator's properties, with dynamic ones (of all brokers, then of this one) over them.

        Raises ConfigError, one line that names the setting, its value and the allowed values.
        """
        dynamic, dynamic_default = dict(dynamic or {}), dict(dynamic_default or {})
        given = {**properties, **dynamic_default, **dynamic}
        values: dict[str, Any] = {}
        warnings: list[str] = []
        for name, text in given.items():
            setting = cls.by_name.get(name)
            if setting is None and name.startswith(PREFIX):
                continue  # resolve_listeners checks it
            if setting is None:
                from kafkalite.config.idle_settings import check_property  # 180 names that most starts never need

                warnings.append(check_property(name, text, cls.by_name))
                continue
            try:
                values[setting.attribute] = setting.parse(text)
            except ValueError as fault:
                raise ConfigError(f"{name}={setting.shown(text)} {fault}") from None
            if setting.idle:
                warnings.append(f"{name} is accepted, but has no effect in kafkalite yet")
        if values.get("zookeeper_connect") is None:
            warnings += setting_checks.one_copy_warnings(values)
        setting_checks.resolve_broker_id(values)
        may_wait = given if "listeners" in dynamic else {**dynamic_default, **dynamic}
        resolve_listeners(given, values, cls.by_name, warnings, may_wait)
        config = cls(**values)
        config._remember(
            explicit=dict(properties), dynamic=dynamic, dynamic_default=dynamic_default, warnings=tuple(warnings)
        )
        conflict = config._conflict()
        if conflict:
            raise ConfigError(conflict)
        return config

    def _conflict(self) -> str | None:
        """The conflict between settings that are each valid by themselves, if there is one."""
        if (found := setting_checks.limits_conflict(self.values())) is not None:
            return found
        values = {setting.attribute: self.topic_default(setting) for setting in TopicConfig.settings}
        if values["retention_ms"] == 0:
            return "log.retention.ms (or .minutes, .hours) must be -1 (without limit) or at least 1"
        own = self.values()
        return topic_conflict(values) or group_conflict(own) or share_conflict(own) or streams_conflict(own)

    def topic_default(self, setting: Setting) -> Any:
        """The default that this broker gives to a topic's setting."""
        for name, factor in setting.broker:
            value = getattr(self, name.replace(".", "_"))
            if value is not None:
                return value if factor == 1 else value * factor if value >= 0 else -1  # -1 minutes is -1 ms: unlimited
        return setting.default

    def advertised(self, listener_name: str) -> ListenerConfig | None:
        """The advertised address of this listener; None stands for the address that the client connected to."""
        return next((each for each in self.advertised_listeners if each.name == listener_name), None)

    @property
    def inter_broker_listener(self) -> ListenerConfig | None:
        """The listener that other brokers use, if one is given."""
        name = self.inter_broker_listener_name or self.explicit.get("security.inter.broker.protocol", "")
        return next((each for each in self.listeners if each.name == name.upper()), None)

    def listener_setting(self, listener_name: str, name: str, mechanism: str | None = None) -> Any:
        """The value of setting `name` for this listener, and for one SASL mechanism on it."""
        setting = type(self).by_name[name]
        for prefix in prefixes(listener_name, mechanism):
            for layer in (self.dynamic, self.explicit):
                if (text := layer.get(prefix + name)) is not None:
                    return setting.parse(text)
        return getattr(self, setting.attribute)

    def is_set_for_listener(self, listener_name: str, name: str) -> bool:
        """Whether this setting is given for this listener alone."""
        prefixed = next(prefixes(listener_name)) + name
        return prefixed in self.dynamic or prefixed in self.explicit

    def setting_of(self, name: str) -> Setting | None:
        """The declaration of `name`, which may begin with a listener."""
        by_name = type(self).by_name
        if name.startswith(PREFIX):
            base = base_name(name, [each.name for each in self.listeners])
            return by_name.get(base or base_name_for_any(name) or "")
        if name not in by_name:
            from kafkalite.config.idle_settings import IDLE

            return IDLE.get(name)
        return by_name[name]

    def text_of(self, name: str) -> str:
        """The value of a setting, or of one that has no effect here, as text; "" without one."""
        setting = type(self).by_name.get(name)
        if setting is not None:
            return setting.format(getattr(self, setting.attribute)) or ""
        given, known = self.given(name), self.setting_of(name)
        return (given[0].value if given else known.default_text if known is not None else None) or ""

    def replace(self, **values: Any) -> Self:
        new = super().replace(**values)
        for_listeners = {name: text for name, text in self.explicit.items() if name.startswith(PREFIX)}
        new._remember(explicit={**new.explicit, **for_listeners})
        return new

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """The sources of the value of broker setting `name`, the deciding one first."""
        names = next((group for group in _SYNONYM_GROUPS if name in group), (name,))
        found = self.given(*names)
        for n in names:
            if (known := self.setting_of(n)) is not None and known.default_text is not None:
                found.append(ConfigSynonym(n, known.default_text, ConfigSource.DEFAULT_CONFIG))
        while found and found[0].name != name:  # as Kafka does: other names before the first of this one do not count
            del found[0]
        return tuple(found)

    def given(self, *names: str) -> list[ConfigSynonym]:
        """Settings of these names that were set, the deciding one first."""
        layers = (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.explicit, ConfigSource.STATIC_BROKER_CONFIG),
        )
        return [ConfigSynonym(n, layer[n], source) for layer, source in layers for n in names if n in layer]

    def describe(self) -> list[ConfigEntry]:
        """Every setting of the broker as DescribeConfigs answers it, with the sources of its value."""
        entries = []
        for setting in type(self).settings:
            synonyms = self.synonyms(setting.name)
            if setting.dynamic_only and synonyms[0].source is ConfigSource.DEFAULT_CONFIG:
                continue
            value = setting.format(getattr(self, setting.attribute)) if synonyms else None
            if setting.convert and synonyms:
                value = synonyms[0].value
            entries.append(ConfigEntry.of(setting, value, synonyms, read_only=not setting.dynamic))
        from kafkalite.config.idle_settings import IDLE, describe_idle

        entries += self._describe_listener_settings() + describe_idle(self.synonyms)
        for name in dict.fromkeys((*self.explicit, *self.dynamic_default, *self.dynamic)):
            if name not in type(self).by_name and name not in IDLE and not name.startswith(PREFIX):
                # its value is hidden: a plugin may keep a secret there
                unknown = tuple(one._replace(value=None) for one in self.given(name))
                entries.append(ConfigEntry(name, None, unknown[0].source, True, True, ConfigType.UNKNOWN, "", unknown))
        return entries

    def _describe_listener_settings(self) -> list[ConfigEntry]:
        entries = []
        for name in dict.fromkeys((*self.explicit, *self.dynamic)):
            if name.startswith(PREFIX) and (setting := self.setting_of(name)) is not None:
                synonyms = (*self.given(name), *self.synonyms(setting.name))
                entry = ConfigEntry.of(
                    setting, synonyms[0].value, synonyms, read_only=True
                )  # Kafka reports all of them so
                entries.append(entry._replace(name=name))
        return entries


_SYNONYM_GROUPS = tuple(tuple(name for name, _ in s.broker) for s in TopicConfig.settings if len(s.broker) > 1)
