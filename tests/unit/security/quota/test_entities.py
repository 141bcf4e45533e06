"""Names and paths of entities, changes of their quotas, and the filter that finds them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.security.quota.entities import Alteration, Component, Entity, EntityFilter, Match, changed, entity_of

names = st.none() | st.text(min_size=1, max_size=8).filter(lambda name: name.isprintable())


@given(names, names)
def test_a_path_names_one_entity(user: str | None, client: str | None) -> None:
    for entity in (
        Entity((("user", user),)),
        Entity((("client-id", client),)),
        Entity((("user", user), ("client-id", client))),
        Entity((("ip", client),)),
    ):
        assert entity_of(entity.path) == entity
        assert all(entity.path.split("/"))


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ([("user", "a*b c")], "users/a%2Ab%20c"),
        ([("user", "<default>")], "users/%3Cdefault%3E"),
        ([("user", None), ("client-id", "x/y")], "users/<default>/clients/x%2Fy"),
        ([("client-id", None)], "clients/<default>"),
        ([("ip", "::1")], "ips/%3A%3A1"),
    ],
)
def test_paths_are_kafkas(entity: list[tuple[str, str | None]], path: str) -> None:
    assert Entity(tuple(entity)).path == path


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ([], "empty client quota entity"),
        ([("user", "")], "Empty user not supported"),
        ([("group", "g")], "Unhandled client quota entity type: group"),
        ([("user", "a"), ("ip", "10.0.0.1")], "IP entity should not be used"),
    ],
)
def test_entities_that_cannot_be(entity: list[tuple[str, str | None]], words: str) -> None:
    with pytest.raises(KafkaError, match=words) as refusal:
        _ = Entity(tuple(entity)).path
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("producer_byte_rate", 1024.0, "1024"),
        ("producer_byte_rate", 1024.0000000001, "1024"),
        ("consumer_byte_rate", 9.223372036854775807e18, "9223372036854775807"),
        ("request_percentage", 200.0, "200.0"),
        ("request_percentage", 0.0001, "1.0E-4"),
        ("controller_mutation_rate", 12345678.5, "1.23456785E7"),
        ("controller_mutation_rate", 1e300, "1.0E300"),
        ("controller_mutation_rate", -0.25, "-0.25"),
    ],
)
def test_numbers_are_written_as_kafka_writes_them(key: str, value: float, text: str) -> None:
    assert changed("users/a", {"SCRAM-SHA-256": "s"}, [Alteration(key, value)]) == {"SCRAM-SHA-256": "s", key: text}


@pytest.mark.parametrize(
    ("path", "key", "value", "code"),
    [
        ("users/a", "producer_byte_rate", 1.5, ErrorCode.INVALID_REQUEST),
        ("users/a", "producer_byte_rate", 1e300, ErrorCode.INVALID_REQUEST),
        ("users/a", "producer_byte_rate", float("nan"), ErrorCode.INVALID_REQUEST),
        ("users/a", "request_percentage", float("inf"), ErrorCode.INVALID_REQUEST),
        ("users/a", "connection_creation_rate", 1.0, ErrorCode.INVALID_REQUEST),
        ("users/a", "SCRAM-SHA-256", 1.0, ErrorCode.INVALID_REQUEST),
        ("ips/10.0.0.1", "producer_byte_rate", 1.0, ErrorCode.INVALID_REQUEST),
        ("ips/10.0.0.1", "connection_creation_rate", 1e10, ErrorCode.INVALID_REQUEST),
        ("ips/10.0.0.1", "connection_creation_rate", -1.0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_values_that_cannot_be(path: str, key: str, value: float, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        changed(path, {}, [Alteration(key, value)])
    assert refusal.value.code is code


def test_removing_what_is_not_there_is_no_fault() -> None:
    assert changed("users/a", {"producer_byte_rate": "1"}, [Alteration("nonsense", None)]) == {
        "producer_byte_rate": "1"
    }


QUOTA = {"producer_byte_rate": "1"}
PATHS = ("users/a", "users/<default>", "clients/c", "users/a/clients/c", "users/a/clients/<default>")
CONFIGS = dict.fromkeys(PATHS, QUOTA) | {
    "users/scram": {"SCRAM-SHA-256": "s"},
    "ips/10.0.0.1": {"connection_creation_rate": "5"},
}


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ({}, False, set(CONFIGS) - {"users/scram"}),
        ({}, True, set()),
        ({"user": Component(Match.EXACT, "a")}, True, {"users/a"}),
        ({"user": Component(Match.EXACT, "a")}, False, {"users/a", "users/a/clients/c", "users/a/clients/<default>"}),
        ({"user": Component(Match.DEFAULT)}, True, {"users/<default>"}),
        ({"user": Component(Match.ANY)}, True, {"users/a", "users/<default>"}),
        (
            {"user": Component(Match.ANY), "client-id": Component(Match.DEFAULT)},
            True,
            {"users/a/clients/<default>"},
        ),
        ({"client-id": Component(Match.EXACT, "c")}, False, {"clients/c", "users/a/clients/c"}),
        ({"ip": Component(Match.ANY)}, True, {"ips/10.0.0.1"}),
        ({"ip": Component(Match.EXACT, "10.0.0.2")}, True, set()),
    ],
)
def test_a_filter_finds(components: dict[str, Component], strict: bool, found: set[str]) -> None:
    matching = EntityFilter(components.items(), strict=strict).quotas(CONFIGS)
    assert {entity.path for entity in matching} == found


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        (["user", "user"], ErrorCode.INVALID_REQUEST),
        ([""], ErrorCode.INVALID_REQUEST),
        (["group"], ErrorCode.UNSUPPORTED_VERSION),
        (["ip", "user"], ErrorCode.INVALID_REQUEST),
    ],
)
def test_filters_that_cannot_be(kinds: list[str], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        EntityFilter([(kind, Component(Match.ANY)) for kind in kinds], strict=False)
    assert refusal.value.code is code
