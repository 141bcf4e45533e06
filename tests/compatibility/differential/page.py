"""docs/differences.md, made of the explanations that stand beside the cases."""

from __future__ import annotations

from tests.compatibility.differential import brokers
from tests.support.places import ROOT

PATH = ROOT / "docs" / "differences.md"

TITLES = {
    "api_versions": "ApiVersions",
    "metadata": "Metadata, DescribeCluster",
    "topics": "CreateTopics, DeleteTopics",
    "partitions": "CreatePartitions",
    "configs": "DescribeConfigs",
    "config_changes": "AlterConfigs, IncrementalAlterConfigs",
    "produce": "Produce",
    "bad_batches": "Produce: bad batches",
    "sequences": "Produce: idempotent producers",
    "fetch": "Fetch",
    "fetch_sessions": "Fetch: sessions",
    "list_offsets": "ListOffsets",
    "epochs": "OffsetForLeaderEpoch",
    "delete_records": "DeleteRecords",
    "log_dirs": "AlterReplicaLogDirs, DescribeLogDirs",
    "elections": "ElectLeaders",
    "reassignments": "AlterPartitionReassignments, ListPartitionReassignments",
    "groups": "JoinGroup, SyncGroup, Heartbeat, LeaveGroup",
    "group_refusals": "Groups: what is refused",
    "consumer_groups": "Groups of the consumer protocol (Kafka 4.3)",
    "share_groups": "Share groups (Kafka 4.3)",
    "share_records": "Records of share groups in flight (Kafka 4.3)",
    "streams_groups": "Groups of Kafka Streams (Kafka 4.3)",
    "static_members": "Groups: static members",
    "group_admin": "FindCoordinator, DescribeGroups, ListGroups, DeleteGroups",
    "offsets": "OffsetCommit, OffsetFetch",
    "offset_delete": "OffsetDelete",
    "producer_ids": "InitProducerId",
    "old_versions": "Produce 0-2, Fetch 0-3, ListOffsets 0",
    "transactional_ids": "InitProducerId: transactional ids",
    "transactions": "AddPartitionsToTxn, AddOffsetsToTxn, EndTxn",
    "added_partitions": "AddPartitionsToTxn of brokers",
    "transactional_produce": "Produce: transactions",
    "transaction_markers": "WriteTxnMarkers",
    "transactions_v2": "Transactions of version 2",
    "transaction_offsets": "TxnOffsetCommit, OffsetFetch of what is stable",
    "committed_reads": "Fetch, ListOffsets: what is committed",
    "transaction_admin": "DescribeTransactions, ListTransactions, DescribeProducers",
    "topic_partitions": "DescribeTopicPartitions",
    "frames": "Frames",
    "features": "Features",
    "config_resources": "Settings of groups and of client metrics, ListConfigResources",
    "authorization": "All APIs with an authorizer",
    "acls": "DescribeAcls, CreateAcls, DeleteAcls",
    "broker_settings": "DescribeConfigs, IncrementalAlterConfigs: every setting of a broker",
    "quotas": "DescribeClientQuotas, AlterClientQuotas",
}

HEAD = """\
# Where kafkalite answers otherwise than Apache Kafka

Made by `tests/compatibility/differential` (do not edit): the same {tellings} tellings of {stories} stories of raw
requests go to kafkalite and to Apache Kafka (KRaft, one node), every API of `kafkalite/protocol/apis.py` in every
version that it lists, and the answers are compared field by field: with Kafka 3.9.1 in the versions that it serves,
with Kafka 4.3.0 in newer ones and in APIs that 3.9 lacks. What is below differs and is meant to; everything
else is equal, and an entry that is no longer true fails the suite.

Not compared: ids that a broker draws, its clock, hosts and ports, its data directory and the room on that disk, the
order of arrays that Kafka keeps in hash tables, and the wording of error messages and of settings' documentation. Where
Kafka has an error message there is one here; kafkalite also says why in places where Kafka leaves the message out.
"""

ELSEWHERE = """
## What no answer shows

* A topic is ready when the answer that created it leaves, and `FindCoordinator` answers at once; Kafka's brokers learn
  of both a moment later, and answer 3, 5, 6 or 15 meanwhile.
* A request other than Produce may have 16 MiB, within `socket.request.max.bytes`.
* A message set of Produce 0-2 may hold 50,000 messages, or as many of the smallest as `max.message.bytes` has room for
  (above that MESSAGE_TOO_LARGE): a wrapper of some kilobytes could hold any number.
* A batch may unpack to 32 MiB and, if it is compressed, to 250,000 records; a larger one is refused with
  INVALID_RECORD, unless kafkalite.record.validation is none. A few kilobytes could unpack to any number.
* lz4 frames with linked blocks are refused by a produce, as in Kafka, and read where they are in a log already: earlier
  versions took them, and clients in C read them. Kafka's consumers and its cleaner fail on them.
* Snappy whose second stream does not begin with xerial's magic is read on behind those 16 bytes; where Kafka ends it
  depends on the sizes of its buffers.
* A batch that cannot be read, and is in the log of a compacted topic, is kept as it is, and the rest is compacted;
  Kafka's cleaner gives up the partition.
* A move to another directory of log.dirs that a stop or a crash has ended is begun anew by the next start; Kafka goes
  on with the copy that is there.
* A `partition.metadata` in which no topic id can be read is warned of, and written again with the id that the metadata
  have for its topic; Kafka takes the whole log directory offline, and stops if it is the only one.
* Where nothing is said, `broker.id` is 0, and `__consumer_offsets` and `__transaction_state` are created with no more
  replicas than there are brokers, at most three, and a `min.insync.replicas` that these can meet. Kafka creates neither
  before there are three brokers, so that one or two serve no groups. In a cluster a warning says so, and what is set is
  waited for as in Kafka.
* A batch that an idempotent producer sends again after a clean stop is found in the log if it is one of its last five;
  Kafka remembers the last one alone over a stop, and refuses the others as out of order.
* Quotas: the time of requests that repeat earlier ones counts when it is a millisecond, and whether a fetch fits is
  decided by its records, without the some hundred bytes around them. A batch that is larger than its quota allows in
  all windows together is sent when nothing else was lately; at Kafka its consumer waits for ever. A byte rate of 0
  limits nobody, as in Kafka, and so does a value in ZooKeeper that is no number; Kafka's broker stops to take changes
  of quotas then.
* A topology of Kafka Streams may have 100,000 tasks; one with more is refused with STREAMS_INVALID_TOPOLOGY.
* AlterUserScramCredentials takes several changes of one user, each of another mechanism, as Kafka does with ZooKeeper;
  Kafka with KRaft refuses them with DUPLICATE_RESOURCE.

## What producers send

Compared with Kafka's `LogValidator` by `tests/compatibility/interop/test_validation_beside_kafka.py`: beside what is
said under "Produce: bad batches",

* a batch that the broker compresses anew is taken with what it may have otherwise: times below -1, a producer id
  without an epoch or a sequence, the transactional bit without a producer id. Kafka takes these as long as it has
  nothing to write, and else fails with UNKNOWN_SERVER_ERROR.
* Bits of a batch's attributes that have no meaning stay; Kafka clears them where it writes the header anew.
* A time that is further from now than 64 bits can tell is out of range; Kafka's difference overflows, and it takes
  some.
* Of several faults in a message set of Produce 0-2 another one may be told: the whole set is made a batch before the
  topic's rules are asked.

## Names and tokens

Compared with Kafka's own classes by `tests/compatibility/interop/test_name_rules.py` and `test_tokens_beside_kafka.py`.

* `ssl.principal.mapping.rules`, `sasl.kerberos.principal.to.local.rules`: constructs of Java's regular expressions
  that are not known here are refused at the start, by their names ([security](security.md#rules-for-names)): a user
  of another name has other rights. A pattern that takes more than 200,000 steps for a name makes nobody of it; Kafka
  goes on for hours.
* A signed token is refused whose header has `crit`, even an empty one (RFC 7515 forbids it); whose key names another
  algorithm (RFC 7517); by HMAC with a secret in the JWKS, which is made to be public; that is not in the alphabet of
  base64url, or whose JSON is not that of RFC 8259 in UTF-8; that holds another token; whose `exp` is beyond what 64
  bits hold in ms, where Kafka's product overflows and takes some of them; whose name is longer than 10,000 letters or
  cannot be written as UTF-8; and one above 64 KiB, so that reading it takes no time before anything is proven.
* An unsecured token is refused whose claims are doubled, or no JSON of RFC 8259 in UTF-8; whose name is not a text
  (Kafka makes the user `true` or `null` of these values); whose scope is not a text; or whose `nbf` is in the future
  (RFC 7519). Kafka 3.9 reads them in the alphabet of plain base64, and so refuses some of its own clients' tokens;
  both are read here.
* A session ends with its token, and after 100 years at the latest: clients count it in nanoseconds.

## What only a cluster shows

* A broker by itself has one copy of each partition: `default.replication.factor` and those of the internal topics above
  1 are warned of at start and count as 1 there; Kafka creates no such topic then.
* A broker that stops waits only for partitions that another live broker could lead; Kafka's waits for all that have
  several replicas.
* A reassignment that is cancelled, or gets another target, is refused with INVALID_REPLICA_ASSIGNMENT where no replica
  that would stay is alive and in sync; Kafka has no leader then. More in [replication](replication.md).
* Settings of a broker can be changed at any other one, also while it is away; Kafka has clients go to the broker
  itself. What they are is told by the broker itself, as in Kafka.
* DescribeCluster with IncludeFencedBrokers finds no more brokers than without: in ZooKeeper a broker is registered as
  long as it lives, and nothing there says where one that is away would be. Kafka in KRaft mode keeps registrations.
* The `version` in a record of a group's regular expression counts the topics that were created since the broker's
  start; Kafka has the offset of its metadata log there. Neither reads that of another broker.
* The partitions of a member whose new regular expression matches nothing go to others once that is known. In Kafka,
  by its source, they have no reader until the next rebalance if others subscribe to their topics.
* A broker whose number was made up tells that number as its `broker.id`; Kafka tells -1, as configured.
* A broker that cannot reach ZooKeeper asks the others whether its session is over, and gives way; Kafka leads on.
"""


def text() -> str:
    """The page as it should be."""
    stories = [story for family in brokers.FAMILIES for story in brokers.stories(family).values()]
    parts = [HEAD.format(tellings=sum(len(story.versions) for story in stories), stories=len(stories))]
    shown: set[int] = set()
    for family in brokers.FAMILIES:
        explained = [one for one in brokers.explanations(family) if id(one) not in shown]
        shown.update(map(id, explained))
        if explained:
            parts.append(f"\n## {TITLES[family]}\n\n")
            parts += [f"* {one.what}: {one.why}.\n" for one in explained]
    return "".join(parts) + ELSEWHERE
