"""Fetch sessions from the side of the one who fetches, against the leader's side of them."""

from __future__ import annotations

import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.api.request.fetch_sessions import FetchSessions
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.protocol.codec.codec import decode
from kafkalite.protocol.header import decode_request_header
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.replication.leader_requests import FETCH_VERSION, INITIAL_EPOCH, FetchSession, Key, fetch_frame
from kafkalite.replication.replica.follower_replica import Fetch

TOPICS = [uuid.UUID(int=number).bytes for number in (1, 2)]
KEYS: list[Key] = [(topic, index) for topic in TOPICS for index in (0, 1)]


def at(offset: int) -> Fetch:
    return Fetch(leader_epoch=3, fetch_offset=offset, last_fetched_epoch=2, log_start_offset=0)


def test_a_request_names_what_has_changed() -> None:
    session = FetchSession()
    first, second = KEYS[:2]
    session.want(first, at(1))
    session.want(second, at(5))
    full = session.next_request()
    assert (full.session_epoch, dict(full.named), full.forgotten) == (INITIAL_EPOCH, {first: at(1), second: at(5)}, [])
    session.on_answer(session_id=77)
    assert session.next_request() == (77, 1, {}, [])
    session.on_answer(77)
    session.want(first, at(2))
    session.want(second, at(5))
    assert session.next_request() == (77, 2, {first: at(2)}, [])
    session.on_answer(77)
    session.forget(second)
    assert session.sent(second) == at(5)  # the answer to the latest request may be under way
    assert session.next_request() == (77, 3, {}, [second])
    assert session.sent(second) is None


def test_a_partition_that_is_forgotten_and_wanted_again_before_the_next_request_stays() -> None:
    session = FetchSession()
    session.want(KEYS[0], at(1))
    session.next_request()
    session.on_answer(7)
    session.forget(KEYS[0])
    session.want(KEYS[0], at(1))
    assert session.next_request() == (7, 1, {}, [])


def test_the_partition_that_changed_last_is_named_last() -> None:
    session = FetchSession()
    for key in KEYS:
        session.want(key, at(1))
    session.want(KEYS[0], at(2))
    assert list(session.next_request().named) == [*KEYS[1:], KEYS[0]]


def test_without_a_session_every_request_names_all() -> None:
    session = FetchSession()
    session.want(KEYS[0], at(1))
    for _ in range(3):
        assert session.next_request() == (0, INITIAL_EPOCH, {KEYS[0]: at(1)}, [])
        session.on_answer(session_id=0)


def test_an_epoch_after_the_last_one_is_1() -> None:
    session = FetchSession()
    session.want(KEYS[0], at(1))
    session.next_request()
    session.on_answer(7)
    session._epoch = 0x7FFFFFFF
    assert session.next_request().session_epoch == 0x7FFFFFFF
    session.on_answer(7)
    assert session.next_request().session_epoch == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.sampled_from(KEYS), st.integers(0, 3)),
        st.tuples(st.just("forget"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(
            st.sampled_from(["ask", "ask", "answer lost", "request lost", "leader restarts"]), st.none(), st.none()
        ),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps=STEPS, slots=st.integers(0, 1))
def test_the_leader_fetches_what_the_follower_believes_whatever_gets_lost(
    steps: list[tuple[str, Key, int]], slots: int
) -> None:
    ours, theirs = FetchSession(), FetchSessions(slots)
    config = BrokerConfig()
    wanted: dict[Key, Fetch] = {}
    for what, key, offset in steps:
        if what == "want":
            wanted[key] = at(offset)
            ours.want(key, at(offset))
        elif what == "forget":
            wanted.pop(key, None)
            ours.forget(key)
        elif what == "leader restarts":
            theirs = FetchSessions(slots)
        elif len(ours):
            frame = memoryview(fetch_frame(ours.next_request(), config, 1, 5, 9, b"f"))[4:]
            request: FetchRequest = decode(FetchRequest, FETCH_VERSION, frame, decode_request_header(frame)[1])[0]
            if what == "request lost":
                ours.restart()
                continue
            try:
                context = theirs.context(request, FETCH_VERSION, 0)
            except KafkaError as error:
                assert error.code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
                ours.restart(closes=error.code is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                continue
            held = {
                (each[0].bytes, each[1]): (at.current_leader_epoch, at.fetch_offset, at.last_fetched_epoch)
                for each, at in context.partitions.items()
            }
            assert held == {each: fetch[:3] for each, fetch in wanted.items()}
            assert all(ours.sent(each) == fetch for each, fetch in wanted.items())
            assert len(theirs) == slots
            if what == "answer lost":
                ours.restart()
            else:
                ours.on_answer(context.session_id)
