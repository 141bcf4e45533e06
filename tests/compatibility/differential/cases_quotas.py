"""DescribeClientQuotas, AlterClientQuotas."""

from __future__ import annotations

from kafkalite.protocol.messages.entity_configs import (
    AlterClientQuotasRequest,
    AlteredEntity,
    DescribeClientQuotasRequest,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaOperation,
)
from tests.compatibility.differential.engine import Explained, Teller, every_version, once

Entity = dict[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2
NOT_FINITE = Explained(
    "AlterClientQuotas refuses numbers that are not finite",
    "Apache Kafka stores NaN and Infinity, and then counts against a limit that compares with nothing",
    "entries.*.error_code",
    "entries.*.error_message",
)
NOBODY = Explained(
    "DescribeClientQuotas with an empty name finds nobody",
    "Apache Kafka fails over the path of its node and answers UNKNOWN_SERVER_ERROR",
    "error_code",
    "error_message",
    "entries",
)
NO_NUMBER = Explained(
    "AlterClientQuotas answers INVALID_REQUEST where a quota has the name of a SCRAM mechanism",
    "Apache Kafka fails over the type of that setting and answers UNKNOWN_SERVER_ERROR",
    "entries.*.error_code",
    "entries.*.error_message",
)


def altered(entity: Entity, **ops: float | None) -> AlteredEntity:
    return AlteredEntity(
        entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def alter(*entries: AlteredEntity, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def wanted(*components: tuple[str, int, str | None], strict: bool = True) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            QuotaFilterComponent(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


@every_version("DescribeClientQuotas")
def set_told_and_removed(t: Teller) -> None:
    user, client = t.name("user *"), t.name("client/%")
    entries = [
        altered({"user": user}, producer_byte_rate=1e6, request_percentage=12.5),
        altered({"user": user, "client-id": client}, consumer_byte_rate=2e6),
        altered({"user": user, "client-id": None}, controller_mutation_rate=1e-4),
        altered({"client-id": client}, controller_mutation_rate=12345678.9),
    ]
    t.ask("set", alter(*entries))
    t.ask("of the user", wanted(("user", EXACT, user)))
    t.ask("of the user and its clients", wanted(("user", EXACT, user), strict=False))
    t.ask("of both", wanted(("user", EXACT, user), ("client-id", EXACT, client)))
    t.ask("of its clients", wanted(("user", EXACT, user), ("client-id", ANY, None)))
    t.ask("of its other clients", wanted(("user", EXACT, user), ("client-id", DEFAULT, None)))
    t.ask("of the client", wanted(("client-id", EXACT, client)))
    t.ask("of the client anywhere", wanted(("client-id", EXACT, client), strict=False))
    t.ask("of nobody", wanted(("user", EXACT, t.name("nobody"))))
    t.ask("changed", alter(altered({"user": user}, producer_byte_rate=5.0, request_percentage=None)))
    t.ask("of the user then", wanted(("user", EXACT, user)))
    t.ask("checked only", alter(altered({"user": user}, producer_byte_rate=7.0), validate_only=True))
    t.ask("twice", alter(altered({"user": user}, producer_byte_rate=8.0), altered({"user": user}, nonsense=1.0)))
    t.ask("of the user after that", wanted(("user", EXACT, user)))
    every = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    t.ask("removed", alter(*[altered(dict(_entity(each)), **dict.fromkeys(every)) for each in entries]))
    t.ask("of the user at last", wanted(("user", EXACT, user), strict=False))


def _entity(entry: AlteredEntity) -> list[tuple[str, str | None]]:
    return [(each.entity_type, each.entity_name) for each in entry.entity]


@once
def addresses(t: Teller) -> None:
    rate = "connection_creation_rate"
    t.ask("set", alter(altered({"ip": "10.20.30.40"}, **{rate: 7.0}), altered({"ip": None}, **{rate: 1e6})), 1)
    t.ask("of it", wanted(("ip", EXACT, "10.20.30.40")), 1)
    t.ask("of the default, and of any", wanted(("ip", DEFAULT, None)), 1)
    t.ask("of any", wanted(("ip", ANY, None)), 1)
    t.ask("removed", alter(altered({"ip": "10.20.30.40"}, **{rate: None}), altered({"ip": None}, **{rate: None})), 1)
    t.ask("of any at last", wanted(("ip", ANY, None)), 1)
    for label, host in (("no host", "no such host."), ("an address too long", "1.2.3.4.5"), ("empty", "")):
        t.ask(label, alter(altered({"ip": host}, **{rate: 1.0})), 1)
    for value in (-1.0, 0.5, 1e10):
        t.ask(f"a rate of {value}", alter(altered({"ip": "10.20.30.41"}, **{rate: value})), 1)
    t.ask("the quota of a user", alter(altered({"ip": "10.20.30.41"}, producer_byte_rate=1.0)), 1)


@once
def entities_that_cannot_be(t: Teller) -> None:
    user = t.name("user")
    quota = {"producer_byte_rate": 1e6}
    for label, entity in {
        "none": {},
        "an empty user": {"user": ""},
        "an empty client": {"client-id": ""},
        "an empty client of a user": {"user": user, "client-id": ""},
        "a group": {"group": "g"},
        "no type": {"": "x"},
        "an address and a user": {"ip": "10.0.0.1", "user": user},
        "an address and a client": {"ip": "10.0.0.1", "client-id": user},
    }.items():
        t.ask(label, alter(altered(entity, **quota)), 1)  # type: ignore[arg-type]
    t.ask("nobody", alter(), 1)
    t.ask("good and bad", alter(altered({"user": user}), altered({"user": ""}, **quota)), 1)


@once
def values_that_cannot_be(t: Teller) -> None:
    user = t.name("user")
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"):
        for value in (0.0, -1.0, 0.5, 1.0000000001, 1e15, 9.223372036854775807e18, 1e300):
            t.ask(f"{key} {value}", alter(altered({"user": user}, **{key: value})), 1)
        t.ask(f"told with {key}", wanted(("user", EXACT, user)), 1)
    t.ask("an unknown key", alter(altered({"user": user}, nonsense=1.0)), 1)
    t.ask("an unknown key removed", alter(altered({"user": user}, nonsense=None)), 1)
    t.ask("the key of an address", alter(altered({"user": user}, connection_creation_rate=1.0)), 1)
    t.ask("a credential", alter(altered({"user": user}, **{"SCRAM-SHA-256": 1.0})), 1, but=NO_NUMBER)
    for value in (float("nan"), float("inf")):
        told = alter(altered({"user": user}, request_percentage=value), validate_only=True)
        t.ask(f"{value} percent", told, 1, but=NOT_FINITE)
        bytes_told = alter(altered({"user": user}, producer_byte_rate=value), validate_only=True)
        t.ask(f"{value} bytes", bytes_told, 1, but=NOT_FINITE if value != value else None)


@once
def filters_that_cannot_be(t: Teller) -> None:
    user = t.name("user")
    for label, components in {
        "twice a user": (("user", EXACT, user), ("user", ANY, None)),
        "twice an address": (("ip", EXACT, "10.0.0.1"), ("ip", ANY, None)),
        "no type": (("", EXACT, user),),
        "a group": (("group", EXACT, user),),
        "an address and a user": (("ip", ANY, None), ("user", ANY, None)),
        "an unknown match": (("user", 3, user),),
        "no name to match": (("user", EXACT, None),),
        "a name that is not used": (("user", DEFAULT, user),),
        "an empty name": (("user", EXACT, ""),),
    }.items():
        t.ask(label, wanted(*components), 1, but=NOBODY if label == "an empty name" else None)
    t.ask("strictly nothing", wanted(), 1)
