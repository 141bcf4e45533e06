"""A stock member of a share group that accepts what it reads, and the check of all of them.

A record whose acceptance was confirmed may not be delivered again, so it is accepted once; a record whose acceptance
was refused, or had no answer, comes again unless the broker has it after all.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from confluent_kafka import KafkaException, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.support.replication.group_members import Place
from tests.support.replication.live_cluster import LOG, QUICK
from tests.support.wait import DEADLINE_S, until


def set_share_group(bootstrap_servers: str, group: str, settings: dict[str, str]) -> None:
    """Sets what a group has for itself, such as where it begins."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=LOG)
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(DEADLINE_S)


class ShareMember(threading.Thread):
    """One member, which reads from its creation to `leave`. `committed`: the records whose acceptance was confirmed;
    `unsure`: those whose acceptance was refused or not answered."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.committed: list[Place] = []
        self.unsure: set[Place] = set()
        self.failure: BaseException | None = None
        self.refusals: Counter[str] = Counter()
        self._ends = threading.Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
        self._consumer = ShareConsumer({**QUICK, **settings}, logger=LOG)
        self._consumer.subscribe([topic])
        self.start()

    def run(self) -> None:
        try:
            while not self._ends.is_set():
                self._accept([message for message in self._consumer.poll(0.1) if message.error() is None])
            self._consumer.unsubscribe()  # else `close` may wait for ever, and the member keeps its partitions
            self._consumer.close()
        except BaseException as failure:  # for `check`
            self.failure = failure

    def _accept(self, messages: list[Any]) -> None:
        if not messages:
            return
        for message in messages:
            self._consumer.acknowledge(message)
        confirmed = set()
        try:
            for place, error in self._consumer.commit_sync(DEADLINE_S).items():
                if error is None:
                    confirmed.add(place.partition)
                else:
                    self.refusals[error.args[0].name()] += 1
        except KafkaException as refusal:
            self.refusals[refusal.args[0].name()] += 1
        for message in messages:
            found = (message.partition(), message.offset())
            if found[0] in confirmed:
                self.committed.append(found)
            else:
                self.unsure.add(found)

    def check(self) -> None:
        """Raises what ended the member early."""
        if self.failure is not None:
            raise self.failure

    def leave(self) -> None:
        """Begin to leave, and to give back what it holds; `await_end` waits for the end."""
        self._ends.set()

    def await_end(self) -> None:
        self.join(DEADLINE_S)
        assert not self.is_alive(), "a member does not leave"
        self.check()


def await_all_accepted(members: Collection[ShareMember], written: Collection[Place]) -> None:
    """Wait until each record is accepted, or the answer to its acceptance was lost."""

    def missing() -> set[Place]:
        for member in members:
            member.check()
        return set(written).difference(*(member.committed for member in members), *(each.unsure for each in members))

    until(
        lambda: not missing(), lambda: f"{len(written)} records; missing {sorted(missing())[:10]} of {len(missing())}"
    )


def check_accepted_once(members: Iterable[ShareMember], written: Collection[Place]) -> None:
    """Raises AssertionError if one was accepted twice with confirmation, or was never written."""
    counts = Counter(place for member in members for place in member.committed)
    twice = {place: count for place, count in counts.items() if count > 1}
    assert not twice, f"{len(twice)} records accepted more than once: {sorted(twice.items())[:10]}"
    assert counts.keys() <= set(written), f"never written: {sorted(counts.keys() - set(written))[:10]}"
