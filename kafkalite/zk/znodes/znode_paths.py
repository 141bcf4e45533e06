"""The paths of Kafka's znodes, below the chroot, and of our own below /kafkalite.

    /brokers/topics/orders/partitions/3/state        state("orders", 3)

The access list of a node depends on its path, so the rules for that are here, too.
Source: kafka.zk.ZkData (paths, secure and sensitive ones).
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkalite.common.names import TopicPartition

ADMIN = "/admin"
BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE_ID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CLUSTER = "/cluster"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = "/config/changes/config_change_"
CONSUMERS = "/consumers"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
FEATURE = "/feature"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"

REGISTRATIONS = "/kafkalite/registrations"  # outside of Kafka's paths: its tools list the children of some
TOPIC_DELETIONS = "/kafkalite/topic_deletions"  # its version grows with every topic that is deleted

CONFIG_TOPICS = "topics"
CONFIG_BROKERS = "brokers"
CONFIG_CLIENTS = "clients"
CONFIG_USERS = "users"
CONFIG_IPS = "ips"
CONFIG_GROUPS = "groups"
CONFIG_CLIENT_METRICS = "client-metrics"
CONFIG_TYPES_OF_ZOOKEEPER = (CONFIG_TOPICS, CONFIG_CLIENTS, CONFIG_USERS, CONFIG_BROKERS, CONFIG_IPS)
CONFIG_FEATURES = "features"  # kafkalite's own
CONFIG_TYPES_OF_KRAFT = (CONFIG_GROUPS, CONFIG_CLIENT_METRICS, CONFIG_FEATURES)
"""Kafka has these without ZooKeeper, or elsewhere: their nodes are made when one is needed, and no change is notified,
since its brokers would not understand it."""
CONFIG_TYPES = (*CONFIG_TYPES_OF_ZOOKEEPER, *CONFIG_TYPES_OF_KRAFT)
CONFIG_DEFAULT = "<default>"  # the entity with the defaults of its type

PERSISTENT = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE_ID,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    REGISTRATIONS,
    TOPIC_DELETIONS,
    *(f"{CONFIG}/{each}" for each in CONFIG_TYPES_OF_ZOOKEEPER),
)
"""Nodes that every broker creates at its start, without data, if they are missing, with their parents."""

_SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def registration(broker_id: int) -> str:
    return f"{REGISTRATIONS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    return f"{TOPICS}/{name}/partitions/{number}"


def state(name: str, number: int) -> str:
    return f"{TOPICS}/{name}/partitions/{number}/state"


def config(entity_type: str, entity: str) -> str:
    """`entity` is a topic's name, a broker's id, or CONFIG_DEFAULT."""
    return f"{CONFIG}/{entity_type}/{entity}"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def consumer_offset(group: str, topic_name: str, number: int) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic_name}/{number}"


def broker_of(path: str) -> int | None:
    """The id in /brokers/ids/ID."""
    return _number(_child(path, BROKER_IDS))


def registration_of(path: str) -> int | None:
    """The id in /kafkalite/registrations/ID."""
    return _number(_child(path, REGISTRATIONS))


def topic_of(path: str) -> str | None:
    """The name in /brokers/topics/NAME and in all paths below it."""
    if not path.startswith(TOPICS + "/"):
        return None
    return path[len(TOPICS) + 1 :].partition("/")[0] or None


def state_of(path: str) -> TopicPartition | None:
    """Name and number in /brokers/topics/NAME/partitions/NUMBER/state."""
    parts = path.split("/")
    if len(parts) != 7 or not path.startswith(TOPICS + "/") or parts[4] != "partitions" or parts[6] != "state":
        return None
    number = _number(parts[5])
    return None if number is None else (parts[3], number)


def config_of(path: str) -> tuple[str, str] | None:
    """Type and entity in /config/TYPE/ENTITY; /config/changes is no type."""
    entity_type, slash, entity = path.removeprefix(CONFIG + "/").partition("/")
    if not path.startswith(CONFIG + "/") or not slash or not entity or entity_type not in CONFIG_TYPES:
        return None
    return entity_type, entity


def deleted_topic_of(path: str) -> str | None:
    """The name in /admin/delete_topics/NAME."""
    return _child(path, DELETE_TOPICS)


def with_parents(paths: Sequence[str]) -> list[str]:
    """These paths and all their parents, each once, parents first."""
    found: dict[str, None] = {}
    for path in paths:
        at = path.find("/", 1)
        while at > 0:
            found[path[:at]] = None
            at = path.find("/", at + 1)
        found[path] = None
    return list(found)


def is_open(path: str) -> bool:
    """Whether every client may write there also with zookeeper.set.acl, as old consumers do."""
    return path == CONSUMERS


def is_sensitive(path: str) -> bool:
    """Whether the node may contain secrets, which only brokers may read."""
    return path.startswith(_SENSITIVE)


def _child(path: str, parent: str) -> str | None:
    name = path[len(parent) + 1 :]
    return name if path.startswith(parent + "/") and name and "/" not in name else None


def _number(text: str | None) -> int | None:
    """The number, if it is written as Java does: "01" is another node than "1"."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    number = int(text)
    return number if str(number) == text and number < 1 << 31 else None
