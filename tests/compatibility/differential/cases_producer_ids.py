"""InitProducerId."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from tests.compatibility.differential.engine import Teller, every_version, in_versions


def init(name: str | None = None, **more: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(**{"transactional_id": name, "transaction_timeout_ms": 60_000} | more)


def is_ready(answer: Any) -> bool:
    return answer.error_code not in (14, 15, 16, 51)


@every_version("InitProducerId")
def ids(t: Teller) -> None:
    t.ask("one", init(), until=is_ready)
    t.ask("another", init())
    t.ask("no timeout", init(transaction_timeout_ms=0))
    t.ask("a timeout below zero", init(transaction_timeout_ms=-1))
    t.ask("an empty transactional id", init(""))


@in_versions(3, 4, 5)
def ids_of_before(t: Teller) -> None:
    mine = t.ask("one", init(), until=is_ready)
    t.ask("with what it had", init(producer_id=mine.producer_id, producer_epoch=mine.producer_epoch))
    t.ask("with an id but no epoch", init(producer_id=mine.producer_id, producer_epoch=-1))
    t.ask("with an epoch but no id", init(producer_id=-1, producer_epoch=3))
    t.ask("with an id that nobody drew", init(producer_id=1 << 40, producer_epoch=0))


@in_versions(0, 2, 4, 5)
def transactional_ids(t: Teller) -> None:
    # Kafka makes the topic of transactions when a coordinator is asked for, and nobody coordinates before
    t.aside(FindCoordinatorRequest(key=t.name("tx"), key_type=1), 2)
    t.ask("a good one", init(t.name("tx")), until=is_ready)
    t.ask("a timeout of 0", init(t.name("tx"), transaction_timeout_ms=0), until=is_ready)
