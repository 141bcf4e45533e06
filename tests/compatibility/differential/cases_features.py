"""UpdateFeatures, and what ApiVersions says of features."""

from __future__ import annotations

from kafkalite.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from kafkalite.protocol.messages.quorum import DescribeQuorumRequest
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions_of_4_3, once_in_4_3

UPGRADE, SAFE, UNSAFE = 1, 2, 3
GROUPS, TRANSACTIONS = "group.version", "transaction.version"

OTHER_FEATURES = Explained(
    "the features are group.version, share.version, streams.version and transaction.version",
    "there is no metadata log",
    "supported_features",
    *(f"{kind}.{name}{rest}" for kind in ("supported_features", "finalized_features") for name in (
        "metadata_version", "kraft_version", "eligible_leader_replicas_version",
    ) for rest in ("", ".**")),
)  # fmt: skip
OWN_TABLE = Explained(
    "the table of APIs is kafkalite's own",
    "it has the old versions that Kafka 4 gave up, and lists what works here",
    "api_keys.**",
)
NO_QUORUM = Explained(
    "DescribeQuorum is refused with UNSUPPORTED_VERSION",
    "the metadata stand in ZooKeeper or in a journal",
    "**",
)


def update(t: Teller, *updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level, _ in updates]
    for key, (_, _, kind) in zip(keys, updates, strict=True):
        if t.v == 0:
            key.allow_downgrade = kind != UPGRADE
        else:
            key.upgrade_type = kind
    return UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)


def levels(t: Teller, label: str, feature: str, level: int, version: int = 4) -> None:
    """Note ApiVersions when the broker has heard of this level."""

    def is_there(answer: object) -> bool:
        found = {one.name: one.max_version_level for one in answer.finalized_features}  # type: ignore[attr-defined]
        return found.get(feature, 0) == level

    t.ask(label, ApiVersionsRequest(client_software_name="differ", client_software_version="1.0"), version,
          but=(OWN_TABLE, OTHER_FEATURES), until=is_there)  # fmt: skip


@in_versions_of_4_3(3, 4)
def what_api_versions_says(t: Teller) -> None:
    levels(t, "at first", GROUPS, 1, t.v)


@every_version("UpdateFeatures")
def refusals(t: Teller) -> None:
    for updates in (
        ((GROUPS, 1, UPGRADE),),
        ((GROUPS, 0, UPGRADE),),
        ((GROUPS, 2, UPGRADE),),
        ((GROUPS, -1, UPGRADE),),
        ((GROUPS, 0, 9),),
        ((GROUPS, 0, 0),),
        ((GROUPS, -1, 9),),
        ((GROUPS, 2, SAFE),),
        ((GROUPS, 1, SAFE),),
        ((GROUPS, 1, UNSAFE),),
        (("nope", 1, UPGRADE),),
        (("nope", 0, UPGRADE),),
        (("nope", 0, SAFE),),
        (("nope", 1, 9),),
        (("", 1, UPGRADE),),
        ((TRANSACTIONS, 3, UPGRADE),),
        ((TRANSACTIONS, 1, UPGRADE),),
        ((TRANSACTIONS, 2, SAFE),),
        ((GROUPS, 1, UPGRADE), (GROUPS, 1, UPGRADE)),
        ((GROUPS, 1, UPGRADE), ("nope", 1, UPGRADE)),
        ((GROUPS, 0, UPGRADE), ("nope", 1, UPGRADE)),
        (),
    ):
        validate_only = t.v > 0
        t.ask(f"{updates}", update(t, *updates, validate_only=validate_only))


@in_versions_of_4_3(1, 2)
def switched_off_and_on(t: Teller) -> None:
    t.ask("only tried", update(t, (GROUPS, 0, SAFE), validate_only=True))
    t.ask("off", update(t, (GROUPS, 0, SAFE)))
    levels(t, "without groups", GROUPS, 0)
    t.ask("off again", update(t, (GROUPS, 0, SAFE)))
    t.ask("on", update(t, (GROUPS, 1, UPGRADE)))
    levels(t, "with groups", GROUPS, 1)
    t.ask("down", update(t, (TRANSACTIONS, 1, UNSAFE)))
    levels(t, "of level 1", TRANSACTIONS, 1)
    t.ask("up", update(t, (TRANSACTIONS, 2, UPGRADE)))
    levels(t, "of level 2", TRANSACTIONS, 2)


@once_in_4_3
def the_quorum(t: Teller) -> None:
    t.ask("nothing asked for", DescribeQuorumRequest(), 2, but=NO_QUORUM)
