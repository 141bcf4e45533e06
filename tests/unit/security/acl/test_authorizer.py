"""Decisions of the authorizer, by example and against a slow reading of Kafka's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.acl.acl import Acl, AclFilter, Entry, Operation, PatternType, Permission, Resource, ResourceType
from kafkalite.security.acl.authorizer import AclIndex, Authorizer, host_text

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALICE, BOB = "User:alice", "User:bob"
HERE = "127.0.0.1"


def authorizer(*acls: tuple[Resource, Entry], by_default: bool = False) -> Authorizer:
    made = Authorizer(["User:admin"], allow_everyone_if_no_acl_found=by_default)
    for resource, entry in acls:
        made.acls.put(resource, (*made.acls.entries(resource), entry))
    return made


def orders(entry: Entry) -> tuple[Resource, Entry]:
    return Resource(TOPIC, "orders"), entry


def test_without_a_list_only_super_users_may() -> None:
    made = authorizer()
    assert made.allows("User:admin", HERE, WRITE, TOPIC, "orders")
    assert not made.allows(ALICE, HERE, WRITE, TOPIC, "orders")
    assert authorizer(by_default=True).allows(ALICE, HERE, WRITE, TOPIC, "orders")


def test_a_list_for_somebody_else_refuses_everybody_else() -> None:
    made = authorizer(orders(Entry(BOB, ALLOW, READ)), by_default=True)
    assert not made.allows(ALICE, HERE, READ, TOPIC, "orders")
    assert made.allows(ALICE, HERE, READ, TOPIC, "others")


def test_who_denies_wins() -> None:
    made = authorizer(orders(Entry(ALICE, ALLOW, ALL)), orders(Entry("User:*", DENY, WRITE, "10.0.0.1")))
    assert made.allows(ALICE, HERE, WRITE, TOPIC, "orders")
    assert not made.allows(ALICE, "10.0.0.1", WRITE, TOPIC, "orders")
    assert made.allows(ALICE, "10.0.0.1", READ, TOPIC, "orders")


@pytest.mark.parametrize("implying", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_what_is_allowed_implies_to_describe_and_what_is_denied_does_not(implying: Operation) -> None:
    assert authorizer(orders(Entry(ALICE, ALLOW, implying))).allows(ALICE, HERE, DESCRIBE, TOPIC, "orders")
    denied = authorizer(orders(Entry(ALICE, DENY, implying)), orders(Entry(ALICE, ALLOW, DESCRIBE)))
    assert denied.allows(ALICE, HERE, DESCRIBE, TOPIC, "orders")


def test_prefixes_and_the_star_apply_to_names() -> None:
    made = authorizer(
        (Resource(TOPIC, "or", PREFIXED), Entry(ALICE, ALLOW, READ)),
        (Resource(TOPIC, "*"), Entry(BOB, ALLOW, READ)),
        (Resource(GROUP, "or", PREFIXED), Entry(ALICE, ALLOW, WRITE)),
    )
    assert made.allows(ALICE, HERE, READ, TOPIC, "orders")
    assert made.allows(ALICE, HERE, READ, TOPIC, "or")
    assert not made.allows(ALICE, HERE, READ, TOPIC, "o")
    assert not made.allows(ALICE, HERE, WRITE, TOPIC, "orders")
    assert made.allows(BOB, HERE, READ, TOPIC, "anything")


def test_a_change_is_seen_after_it_was_told() -> None:
    made = authorizer()
    assert not made.allows(ALICE, HERE, READ, TOPIC, "orders")
    made.acls.put(Resource(TOPIC, "orders"), [Entry(ALICE, ALLOW, READ)])
    made.changed()
    assert made.allows(ALICE, HERE, READ, TOPIC, "orders")


def test_writing_to_some_topic() -> None:
    def may(*acls: tuple[Resource, Entry], by_default: bool = False) -> bool:
        return authorizer(*acls, by_default=by_default).allows_any(ALICE, HERE, WRITE, TOPIC)

    some, star = Resource(TOPIC, "or", PREFIXED), Resource(TOPIC, "*")
    allowed, denied = Entry(ALICE, ALLOW, WRITE), Entry(ALICE, DENY, WRITE)
    assert not may()
    assert may(by_default=True)
    assert may(orders(Entry(ALICE, ALLOW, ALL)))
    assert not may(orders(Entry(ALICE, ALLOW, READ)))
    assert not may(orders(allowed), orders(Entry("User:*", DENY, ALL)))
    assert not may(orders(allowed), (some, denied))
    assert not may((Resource(TOPIC, "orders", PREFIXED), allowed), (some, denied))
    assert may((star, allowed), (some, denied))
    assert not may((star, denied), orders(allowed), by_default=True)


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff", "2001:db8:0:0:0:0:0:ff"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_hosts_are_written_as_java_writes_them(host: str, text: str) -> None:
    assert host_text(host) == text


names = st.text("ab-", min_size=1, max_size=4)
resources = st.builds(
    Resource, st.sampled_from([TOPIC, GROUP]), st.one_of(names, st.just("*")), st.sampled_from([LITERAL, PREFIXED])
)
entries = st.builds(
    Entry,
    st.sampled_from([ALICE, BOB, "User:*"]),
    st.sampled_from([ALLOW, DENY]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, Operation.ALTER_CONFIGS]),
    st.sampled_from(["*", HERE, "::1"]),
)
lists = st.lists(st.tuples(resources, entries), max_size=8)


def slow_decision(
    acls: list[tuple[Resource, Entry]], host: str, operation: Operation, name: str, default: bool
) -> bool:
    there = [
        entry
        for resource, entry in acls
        if resource.type is TOPIC
        and (name.startswith(resource.name) if resource.pattern is PREFIXED else resource.name in (name, "*"))
    ]
    if not there:
        return default
    mine = [
        entry
        for entry in there
        if entry.principal in (ALICE, "User:*") and (entry.host == "*" or host_text(entry.host) == host_text(host))
    ]
    if any(entry.permission is DENY and entry.operation in (ALL, operation) for entry in mine):
        return False
    enough = {operation, ALL}
    if operation is DESCRIBE:
        enough |= {READ, WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(entry.permission is ALLOW and entry.operation in enough for entry in mine)


@given(
    lists,
    st.sampled_from([HERE, "::1", "9.9.9.9"]),
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS]),
    names,
    st.booleans(),
)
def test_decisions_are_those_of_the_rules(
    acls: list[tuple[Resource, Entry]], host: str, operation: Operation, name: str, default: bool
) -> None:
    made = authorizer(*acls, by_default=default)
    for _ in range(2):  # the second time from memory
        assert made.allows(ALICE, host, operation, TOPIC, name) == slow_decision(acls, host, operation, name, default)


@given(lists, resources, st.lists(entries, max_size=3))
def test_the_index_has_what_was_put_last(
    acls: list[tuple[Resource, Entry]], resource: Resource, new: list[Entry]
) -> None:
    index = authorizer(*acls).acls
    index.put(resource, new)
    expected: dict[Resource, dict[Entry, None]] = {}
    for each, entry in acls:
        expected.setdefault(each, {})[entry] = None
    expected[resource] = dict.fromkeys(new)
    assert {each: set(index.entries(each)) for each in index.resources()} == {
        each: set(there) for each, there in expected.items() if there
    }
    assert len(index) == sum(map(len, expected.values()))


@pytest.mark.thorough
def test_ten_thousand_lists_are_not_looked_at() -> None:
    index = AclIndex()
    for number in range(10_000):
        index.put(Resource(TOPIC, f"team{number:04d}-", PREFIXED), [Entry(ALICE, ALLOW, READ)])
    looked_up: list[str] = []

    class Name(str):
        def __getitem__(self, key: object) -> str:  # type: ignore[override]
            looked_up.append(str(key))
            return str.__getitem__(self, key)  # type: ignore[index]

    assert len(index.matching(TOPIC, Name("team0042-orders"))) == 1
    assert len(looked_up) == 1


A, B = Resource(TOPIC, "abc"), Resource(TOPIC, "ab", PREFIXED)
STAR, OTHER = Resource(TOPIC, "*"), Resource(GROUP, "abc")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (AclFilter(), [A, B, STAR, OTHER]),
        (AclFilter(type=TOPIC), [A, B, STAR]),
        (AclFilter(name="abc"), [A, OTHER]),
        (AclFilter(name="abc", pattern=PatternType.MATCH), [A, B, STAR, OTHER]),
        (AclFilter(name="ab", pattern=PREFIXED), [B]),
        (AclFilter(name="abc", pattern=PREFIXED), []),
        (AclFilter(pattern=PREFIXED), [B]),
        (AclFilter(principal=BOB), []),
        (AclFilter(operation=WRITE), []),
        (AclFilter(permission=DENY), []),
        (AclFilter(host="*"), [A, B, STAR, OTHER]),
        (AclFilter(host=HERE), []),
    ],
)
def test_filters(wanted: AclFilter, expected: list[Resource]) -> None:
    found = [each for each in (A, B, STAR, OTHER) if wanted.matches(Acl(each, Entry(ALICE, ALLOW, READ)))]
    assert found == expected
