"""Fetch sessions as a client and a broker play them (KIP-227)."""

from __future__ import annotations

import uuid

import pytest

from kafkalite.api.request import fetch_sessions
from kafkalite.api.request.fetch_sessions import EVICTION_MS, FetchSessions
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)


def request(session_id: int = 0, epoch: int = 0, wants: str = "", forgets: str = "") -> FetchRequest:
    """`wants` and `forgets` name partitions of topic t: "0 1 2"."""
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=int(p)) for p in wants.split()])],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[int(p) for p in forgets.split()])],
    )


def indexes(context: object) -> list[int]:
    return [wanted.index for wanted in context.active.values()]  # type: ignore[attr-defined]


def test_a_session_remembers_what_was_asked_and_applies_changes() -> None:
    sessions = FetchSessions(10)
    first = sessions.context(request(wants="0 1 2"), 12, 0)
    assert first.session_id != 0 and not first.incremental
    second = sessions.context(request(first.session_id, 1), 12, 0)
    assert second.incremental and indexes(second) == [0, 1, 2]
    third = sessions.context(request(first.session_id, 2, wants="7", forgets="1"), 12, 0)
    assert indexes(third) == [0, 2, 7]


def test_a_partition_that_gave_data_goes_to_the_end() -> None:
    sessions = FetchSessions(10)
    session_id = sessions.context(request(wants="0 1 2"), 12, 0).session_id
    context = sessions.context(request(session_id, 1), 12, 0)
    assert context.session is not None
    context.session.served([context.partitions["t", 0]])
    assert indexes(sessions.context(request(session_id, 2), 12, 0)) == [1, 2, 0]


def test_only_news_travels_in_an_incremental_answer() -> None:
    sessions = FetchSessions(10)
    wanted = sessions.context(request(wants="0"), 12, 0).partitions["t", 0]
    quiet = PartitionData(partition_index=0, high_watermark=5, log_start_offset=0)
    assert wanted.is_news(quiet)
    assert not wanted.is_news(quiet)
    assert wanted.is_news(PartitionData(partition_index=0, high_watermark=6, log_start_offset=0))
    assert wanted.is_news(PartitionData(partition_index=0, high_watermark=6, log_start_offset=1))
    assert wanted.is_news(PartitionData(partition_index=0, high_watermark=6, log_start_offset=1, records=b"x"))
    assert wanted.is_news(PartitionData(partition_index=0, error_code=3, high_watermark=-1))
    assert wanted.is_news(PartitionData(partition_index=0, high_watermark=6, log_start_offset=1))  # after an error


@pytest.mark.parametrize(
    ("session_id", "epoch", "code"),
    [
        (12345, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, -2, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_session_that_is_not_there_or_out_of_step_is_refused(session_id: int | None, epoch: int, code: int) -> None:
    sessions = FetchSessions(10)
    open_id = sessions.context(request(wants="0"), 12, 0).session_id
    with pytest.raises(KafkaError) as caught:
        sessions.context(request(open_id if session_id is None else session_id, epoch), 12, 0)
    assert caught.value.code == code


def test_a_final_epoch_closes_and_epoch_zero_replaces() -> None:
    sessions = FetchSessions(10)
    old = sessions.context(request(wants="0"), 12, 0).session_id
    new = sessions.context(request(old, 0, wants="1"), 12, 0)
    assert new.session_id != old and len(sessions) == 1
    assert sessions.context(request(new.session_id, -1, wants="1"), 12, 0).session_id == 0
    assert len(sessions) == 0


def test_a_full_cache_serves_without_a_session_until_one_has_been_idle_long_enough() -> None:
    sessions = FetchSessions(1)
    old = sessions.context(request(wants="0"), 12, 0).session_id
    assert sessions.context(request(wants="1"), 12, EVICTION_MS).session_id == 0
    assert sessions.context(request(wants="1"), 12, EVICTION_MS + 1).session_id not in (0, old)
    assert len(sessions) == 1


def test_a_followers_session_replaces_one_of_a_consumer_and_not_vice_versa() -> None:
    def of_follower(version: int) -> FetchRequest:
        asked = request(wants="1")
        if version >= 15:
            asked.replica_state = ReplicaState(replica_id=2, replica_epoch=5)
        else:
            asked.replica_id = 2
        return asked

    for version in (12, 15):
        sessions = FetchSessions(2)
        first, second = (sessions.context(request(wants="0"), 12, 0).session_id for _ in range(2))
        assert sessions.context(of_follower(version), version, 1).session_id not in (0, first, second)
        with pytest.raises(KafkaError):
            sessions.context(request(first, 1), 12, 1)
        assert sessions.context(of_follower(version), version, 1).session_id not in (0, second)
        assert sessions.context(request(wants="0"), 12, EVICTION_MS).session_id == 0
        assert sessions.context(of_follower(version), version, 1).session_id == 0  # only followers' are left
        assert sessions.context(request(wants="0"), 12, EVICTION_MS + 2).session_id != 0


def test_all_sessions_together_have_so_many_partitions_and_not_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_OF_ALL_MAX", 5)
    sessions = FetchSessions(10)
    first = sessions.context(request(wants="0 1 2"), 12, 0).session_id
    refused = sessions.context(request(wants="3 4 5"), 12, 0)
    assert refused.session_id == 0 and indexes(refused) == [3, 4, 5]  # it is served, but nothing is remembered
    second = sessions.context(request(wants="3 4"), 12, 0).session_id
    assert first != 0 and second != 0
    assert indexes(sessions.context(request(first, 1, forgets="0"), 12, 0)) == [1, 2]
    assert indexes(sessions.context(request(second, 1, wants="5"), 12, 0)) == [3, 4, 5]
    assert sessions.context(request(wants="9"), 12, EVICTION_MS + 1).session_id != 0  # the idle ones make room


def test_a_session_that_grows_beyond_the_bound_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 3)
    sessions = FetchSessions(10)
    session_id = sessions.context(request(wants="0 1 2"), 12, 0).session_id
    with pytest.raises(KafkaError) as caught:
        sessions.context(request(session_id, 1, wants="3"), 12, 0)
    assert caught.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and len(sessions) == 0


def test_a_session_of_ids_is_not_one_of_names() -> None:
    sessions = FetchSessions(10)
    one, other = uuid.uuid4(), uuid.uuid4()

    def by_id(session_id: int, epoch: int, *wants: uuid.UUID, forgets: tuple[uuid.UUID, ...] = ()) -> FetchRequest:
        return FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic_id=wanted, partitions=[FetchPartition(partition=0)]) for wanted in wants],
            forgotten_topics_data=[ForgottenTopic(topic_id=forgotten, partitions=[0]) for forgotten in forgets],
        )

    of_ids = sessions.context(by_id(0, 0, one, other), 13, 0)
    of_names = sessions.context(request(wants="0"), 12, 0)
    assert [wanted.topic_id for wanted in of_ids.partitions.values()] == [one, other]
    for session_id, version in ((of_ids.session_id, 12), (of_names.session_id, 13)):
        with pytest.raises(KafkaError) as caught:
            sessions.context(by_id(session_id, 1), version, 0)
        assert caught.value.code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    # that was no step of the session
    after = sessions.context(by_id(of_ids.session_id, 1, forgets=(uuid.UUID(int=one.int),)), 17, 0)
    assert [wanted.topic_id for wanted in after.partitions.values()] == [other]


def test_a_session_that_has_forgotten_all_is_closed() -> None:
    sessions = FetchSessions(10)
    session_id = sessions.context(request(wants="0 1"), 12, 0).session_id
    assert sessions.context(request(session_id, 1, forgets="0 1"), 12, 0).session_id == 0
    assert len(sessions) == 0
