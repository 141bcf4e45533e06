"""The broker's settings as an operator writes them: values, defaults and errors."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.idle_settings import IDLE
from kafkalite.config.listeners import ListenerConfig
from kafkalite.config.properties import parse_properties
from kafkalite.config.settings import LONG_MAX, ConfigSource
from kafkalite.config.topic_config import TopicConfig
from tests.support.places import ROOT

# What Apache Kafka 3.9's own files set: config/server.properties (ZooKeeper) and config/kraft/server.properties.
KAFKA_ZOOKEEPER_FILE = """
broker.id=0
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""
KAFKA_KRAFT_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
"""


def load(**properties: object) -> BrokerConfig:
    return BrokerConfig.load({name.replace("_", "."): str(value) for name, value in properties.items()})


def fault_of(**properties: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**properties)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_kafkas_zookeeper_file_just_starts():
    config = BrokerConfig.load(parse_properties(KAFKA_ZOOKEEPER_FILE))
    assert config.data_dirs == ("/tmp/kafka-logs",) and config.log_dir == "/tmp/kafka-logs"
    assert config.group_initial_rebalance_delay_ms == 0
    assert [line.split()[0] for line in config.warnings] == ["num.io.threads"]


def test_kafkas_kraft_file_just_starts_without_its_controller():
    config = BrokerConfig.load(parse_properties(KAFKA_KRAFT_FILE))
    assert (config.broker_id, config.node_id) == (1, 1)
    assert config.listeners == (ListenerConfig("PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (ListenerConfig("PLAINTEXT", "localhost", 9092),)
    assert (
        "listeners: CONTROLLER://:9093 is left out, it is for a KRaft controller and kafkalite needs none"
        in config.warnings
    )
    assert len(config.warnings) == 5


def test_nothing_given_is_kafkas_defaults():
    config = load()
    assert config == BrokerConfig() and config.warnings == ()
    assert config.listeners == (ListenerConfig("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.data_dirs == ("kafkalite-data",)
    assert load(**{"log.dirs": " /a , /b,"}).data_dirs == ("/a", "/b")
    assert TopicConfig.build({}, config) == TopicConfig()
    defaults = TopicConfig()
    assert (defaults.segment_bytes, defaults.retention_ms, defaults.max_message_bytes) == (
        1 << 30,
        604_800_000,
        1_048_588,
    )
    assert (defaults.cleanup_policy, defaults.flush_ms, defaults.compression_gzip_level) == (("delete",), LONG_MAX, -1)


def test_a_slip_of_the_pen_is_told_from_what_kafka_knows():
    (warning,) = load(**{"log.segment.byte": 1}).warnings
    assert warning == "log.segment.byte is not a property of Kafka; did you mean log.segment.bytes?"
    (warning,) = load(**{"sasl.login.class": "x"}).warnings
    assert warning == "sasl.login.class is known to Kafka but kafkalite does not honour it yet"
    (warning,) = load(xyzzy=1).warnings
    assert warning == "xyzzy is not a property of Kafka"
    (warning,) = BrokerConfig.load({"bad\nname" + "x" * 500: "1"}).warnings
    assert "\n" not in warning and len(warning) < 250
    own = {s.name for s in BrokerConfig.settings} - {"metrics.listener", "zookeeper.digest"}
    own -= {"kafkalite.record.validation", "console.listener", "console.write", "console.command.config"}
    own -= {"java.security.auth.login.config"}  # a property of Java
    own -= {"sasl.oauthbearer.header.urlencode"}  # of Kafka's clients, whose brokers take it for their own logins
    own -= {"super.users", "allow.everyone.if.no.acl.found"}  # of Kafka's authorizer
    own = {name for name in own if not name.startswith("zookeeper.sasl.")}
    of_kafka = (ROOT / "tests/golden/config/kafka-properties.txt").read_text().split()
    assert own <= set(of_kafka), "a setting that Kafka does not have"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("log.segment.bytes", "lots", "log.segment.bytes='lots' must be an integer from 14 to 2147483647"),
        ("log.segment.bytes", "13", "log.segment.bytes='13' must be an integer from 14 to 2147483647"),
        ("log.segment.bytes", "2147483648", "log.segment.bytes='2147483648' must be an integer from 14 to 2147483647"),
        ("log.segment.bytes", "1_000", "log.segment.bytes='1_000' must be an integer from 14 to 2147483647"),
        (
            "log.segment.bytes",
            "٣٣٣",
            "log.segment.bytes='\\u0663\\u0663\\u0663' must be an integer from 14 to 2147483647",
        ),
        ("log.retention.bytes", "9223372036854775808", "log.retention.bytes='9223372036854775808' must be an integer"),
        (
            "log.cleaner.min.cleanable.ratio",
            "nan",
            "log.cleaner.min.cleanable.ratio='nan' must be a number from 0 to 1",
        ),
        ("auto.create.topics.enable", "yes", "auto.create.topics.enable='yes' must be true or false"),
        (
            "log.cleanup.policy",
            "delete,shred",
            "log.cleanup.policy='delete,shred' must be a comma-separated list of: compact, delete",
        ),
        ("compression.gzip.level", "0", "compression.gzip.level='0' must be an integer from 1 to 9, or -1"),
        ("log.dirs", " , ", "log.dirs=' , ' must name a directory, or several with commas between them"),
        (
            "listeners",
            "PLAINTEXT//x",
            "listeners='PLAINTEXT//x' must be a list of NAME://HOST:PORT, and 'PLAINTEXT//x' is not",
        ),
        (
            "metrics.listener",
            "9404",
            "metrics.listener='9404' must be HOST:PORT, such as 127.0.0.1:9404, or empty",
        ),
        (
            "max.connections.per.ip.overrides",
            "a",
            "max.connections.per.ip.overrides='a' must be a list of host:count, and 'a' is not",
        ),
    ],
)
def test_an_ill_value_is_one_line_that_says_what_is_allowed(name, value, message):
    assert fault_of(**{name: value}) == message


@pytest.mark.parametrize(
    ("properties", "part"),
    [
        ({"listeners": "INSIDE://:9092"}, "add INSIDE:PLAINTEXT to listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "its own name, and PLAINTEXT stands twice"),
        (
            {"listeners": "A://h:9,B://i:9", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"},
            "its own port, and 9 stands",
        ),
        ({"listeners": ""}, "listeners leaves nothing to listen on"),
        ({"listeners": "PLAINTEXT://:70000"}, "ports from 0 to 65535"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "no client can dial 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://here:0"}, "no client can dial port 0"),
        ({"advertised.listeners": "PLAINTEXT://:7777"}, "needs a host name"),
        ({"advertised.listeners": "SSL://here:1"}, "there is no such listener; listeners has PLAINTEXT"),
        ({"inter.broker.listener.name": "INSIDE"}, "INSIDE is none of the listeners; they are PLAINTEXT"),
        ({"broker.id": 1, "node.id": 2}, "broker.id=1 and node.id=2 are the same setting"),
        ({"log.retention.ms": 0}, "log.retention.ms"),
        (
            {"log.cleaner.min.compaction.lag.ms": 5, "log.cleaner.max.compaction.lag.ms": 4},
            "min.compaction.lag.ms (5) must not be above",
        ),
        ({"queued.max.request.bytes": 1}, "must be at least socket.request.max.bytes, 104857600"),
        ({"replica.socket.timeout.ms": 499}, "must not be more than replica.socket.timeout.ms, 499"),
        ({"replica.fetch.wait.max.ms": 30_001}, "must not be more than replica.socket.timeout.ms, 30000"),
        ({"replica.lag.time.max.ms": 400}, "must not be more than replica.lag.time.max.ms, 400"),
        ({"max.connections.per.ip": 0}, "max.connections.per.ip.overrides"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(properties, part):
    assert part in fault_of(**properties)


def test_listeners_of_every_shape():
    config = load(
        **{
            "listeners": "in://0.0.0.0:9092, OUT://[::1]:9092, ANY://:0",
            "listener.security.protocol.map": "IN:PLAINTEXT,out:plaintext,ANY:PLAINTEXT",
            "advertised.listeners": "IN://inside.example:19092,OUT://[2001:db8::1]:9092,ANY://:0",
            "max.connections.per.ip.overrides": "127.0.0.1:200, [::1]:5",
        }
    )
    assert [str(each) for each in config.listeners] == ["IN://0.0.0.0:9092", "OUT://[::1]:9092", "ANY://:0"]
    assert config.advertised("IN").address == "inside.example:19092"
    assert config.advertised("OUT").address == "[2001:db8::1]:9092"
    assert config.advertised("ANY") is None, "it would only repeat what the client dialled"
    assert config.max_connections_per_ip_overrides == {"127.0.0.1": 200, "::1": 5}


def test_a_configuration_does_not_change():
    config = TopicConfig(segment_bytes=100)
    with pytest.raises(AttributeError):
        config.segment_bytes = 5
    assert config.replace(segment_ms=7).values() == {**TopicConfig().values(), "segment_bytes": 100, "segment_ms": 7}
    assert repr(config) == "TopicConfig(segment_bytes=100)"
    made = BrokerConfig(listeners=(ListenerConfig("PLAINTEXT", "::1", 0),), max_connections_per_ip_overrides={"::1": 2})
    assert BrokerConfig.load(made.explicit) == made, "what was given as values can be said as properties"
    with pytest.raises(TypeError):
        TopicConfig(segment_byte=1)


@given(st.sampled_from(sorted(s.name for s in BrokerConfig.settings)), st.text(max_size=30))
def test_any_value_is_taken_or_refused_in_one_line(name, value):
    try:
        config = BrokerConfig.load({name: value})
    except ConfigError as error:
        assert "\n" not in str(error) and len(str(error)) < 400
    else:
        assert TopicConfig.build({}, config) is not None
        described = {entry.name for entry in config.describe()}
        assert described - IDLE.keys() == {
            s.name for s in BrokerConfig.settings if not s.dynamic_only or s.name == name
        }


def test_the_rates_of_replication_are_described_when_they_are_set():
    rate = "leader.replication.throttled.rate"
    assert rate not in {entry.name for entry in BrokerConfig().describe()}
    config = BrokerConfig.load({}, dynamic={rate: "1000"})
    (entry,) = (each for each in config.describe() if each.name == rate)
    assert (entry.value, entry.source, entry.read_only) == ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG, False)
    assert config.leader_replication_throttled_rate == 1000


def test_configuration_is_light_to_import():
    code = "import sys, kafkalite.config.broker_config, kafkalite.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    heavy = {
        "asyncio",
        "dataclasses",
        "inspect",
        "difflib",
        "numpy",
        "kazoo",
        "argparse",
        "json",
        "kafkalite.config.idle_settings",
    }
    assert not heavy & set(loaded)


class TestTheCleaner:
    def test_has_kafkas_defaults_and_all_of_it_works(self) -> None:
        given = {s.name: s.default_text for s in BrokerConfig.settings if s.name.startswith("log.cleaner.")}
        assert given["log.cleaner.io.max.bytes.per.second"] == "1.7976931348623157E308"
        assert {name: text for name, text in given.items() if text is not None} == given and len(given) == 11
        assert BrokerConfig.load({name: str(text) for name, text in given.items()}).warnings == ()

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"log.cleaner.dedupe.buffer.size": 1 << 20}, "must be more than 1 MiB for each of log.cleaner.threads=1"),
            ({"log.cleaner.threads": 128}, "must be more than 1 MiB for each of log.cleaner.threads=128"),
            ({"log.cleaner.threads": 0}, "log.cleaner.threads='0' must be an integer from 1 to 2147483647"),
            ({"log.cleaner.io.buffer.load.factor": 0}, "leaves no room for a single key"),
            ({"log.cleaner.io.max.bytes.per.second": 0}, "must be a number of at least 1"),
        ],
    )
    def test_is_not_given_what_it_cannot_work_with(self, settings: dict[str, int], message: str) -> None:
        assert message in fault_of(**settings)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5"), (1e7, "1.0E7"), (12_345_678.0, "1.2345678E7"), (1e-4, "1.0E-4"), (0.0, "0.0"), (5e-324, "4.9E-324")],
)
def test_numbers_are_shown_as_java_shows_them(value: float, text: str) -> None:
    setting = BrokerConfig.by_name["log.cleaner.io.max.bytes.per.second"]
    assert setting.format(value) == text and setting.format(-value) == ("-" + text if value else "-0.0")


@pytest.mark.parametrize("given", ["zk1:", "zk1:0", "zk1:x", "zk1:65536", ",", "/kafka", "zk1//a", "zk1/a/../b"])
def test_where_zookeeper_cannot_be_is_said(given):
    assert fault_of(**{"zookeeper.connect": given}).startswith(f"zookeeper.connect='{given}' must ")


def test_a_broker_without_a_number_gets_one_of_its_cluster():
    in_cluster = {"zookeeper.connect": "zk1:2181"}
    assert load(**in_cluster).broker_id == load(**in_cluster, broker_id=-1).broker_id == -1
    assert load(**in_cluster, broker_id=7).broker_id == load(**in_cluster, node_id=7).broker_id == 7
    assert load(broker_id=-1).broker_id == load().broker_id == 0, "a cluster by itself"
    never = {**in_cluster, "broker.id.generation.enable": "false"}
    assert "broker.id must be given" in fault_of(**never)
    assert "must not be above reserved.broker.max.id=1000" in fault_of(**in_cluster, broker_id=1001)
    assert load(**never, broker_id=1001).broker_id == 1001
    assert load(**in_cluster, **{"broker.id": 1001, "reserved.broker.max.id": 2000}).broker_id == 1001


def test_a_password_is_shown_to_nobody():
    config = load(**{"zookeeper.digest": "me:sesame", "zookeeper.ssl.keystore.password": "sesame"})
    assert config.zookeeper_digest == "me:sesame"
    assert "sesame" not in repr(config)
    entries = {entry.name: entry for entry in config.describe()}
    assert "sesame" not in repr(entries) and entries["zookeeper.digest"].sensitive
    assert "must be PEM, PKCS12 or JKS" in fault_of(**{"zookeeper.ssl.truststore.type": "BCFKS"})


@pytest.mark.parametrize(
    "name",
    [
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ],
)
def test_more_replicas_than_there_can_be_are_told_and_do_not_keep_it_from_starting(name: str) -> None:
    config = BrokerConfig.load({name: "3"})
    (warning,) = config.warnings
    assert warning.startswith(f"{name}=3 has no effect: there is one copy of each partition")
    assert BrokerConfig.load({name: "3", "zookeeper.connect": "localhost"}).warnings == ()
    assert BrokerConfig.load({name: "1", "min.insync.replicas": "1"}).warnings == ()


def test_what_acks_of_all_means_here_is_told() -> None:
    (warning,) = BrokerConfig.load({"min.insync.replicas": "2"}).warnings
    assert "a topic with 1 replica takes acks=all with that one" in warning


def test_only_the_blanks_that_java_trims_are_no_part_of_a_name() -> None:
    rules = "sasl.kerberos.principal.to.local.rules"
    config = BrokerConfig.load({"super.users": " User:a ;User:\u00a0b;; ", rules: "RULE:[1:$1] ,\u00a0DEFAULT , "}, {})
    assert config.super_users == ("User:a", "User:\u00a0b")
    assert config.sasl_kerberos_principal_to_local_rules == ("RULE:[1:$1]", "\u00a0DEFAULT", "")
