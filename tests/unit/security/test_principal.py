"""Principals as text, and names of certificates as Java prints them: those expected are X500Principal's own."""

from __future__ import annotations

import contextlib

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.security.principal import alternative_names, name_of, parse_principal, subject_of, user
from tests.support.certificates import Authority
from tests.support.decoder_table import attribute, certificate


@pytest.mark.parametrize(
    ("text", "expected"), [("User:alice", ("User", "alice")), ("User:CN=a:b,C=DE", ("User", "CN=a:b,C=DE"))]
)
def test_a_principal_is_split_at_its_first_colon(text: str, expected: tuple[str, str]) -> None:
    assert parse_principal(text) == expected
    assert name_of(text) == expected[1]
    assert user(expected[1]) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_a_principal_needs_type_and_name(text: str) -> None:
    with pytest.raises(ValueError, match="TYPE:NAME"):
        parse_principal(text)


AUTHORITY = Authority()


def subject(*parts: tuple[x509.ObjectIdentifier, str]) -> str:
    name = x509.Name([x509.NameAttribute(oid, text) for oid, text in parts])
    return subject_of(AUTHORITY.identify(name, ()).der)


def test_the_last_part_comes_first() -> None:
    parts = (
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
        (NameOID.LOCALITY_NAME, "München"),
        (NameOID.ORGANIZATION_NAME, "Ex, Inc."),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "R+D"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.USER_ID, "u1"),
        (NameOID.STREET_ADDRESS, "No. 1"),
        (NameOID.COMMON_NAME, "alice"),
    )
    assert subject(*parts) == r"CN=alice,STREET=No. 1,UID=u1,DC=example,OU=R\+D,O=Ex\, Inc.,L=München,ST=Bayern,C=DE"


def test_a_part_without_a_keyword_is_its_number_and_der() -> None:
    assert subject((NameOID.EMAIL_ADDRESS, "a@b")) == "1.2.840.113549.1.9.1=#1603614062"
    assert subject((NameOID.SURNAME, "X")) == "2.5.4.4=#0c0158"


@pytest.mark.parametrize(
    ("text", "expected"),
    [('a=b<c>;"#\\', r"CN=a\=b\<c\>\;\"\#\\"), (" a ", r"CN=\ a\ "), ("a\0b", r"CN=a\00b"), ("a b", "CN=a b")],
)
def test_what_must_be_escaped(text: str, expected: str) -> None:
    assert subject((NameOID.COMMON_NAME, text)) == expected


def test_several_attributes_of_one_part_and_a_value_that_is_no_text() -> None:
    together = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "a"), x509.NameAttribute(NameOID.USER_ID, "b")]
    )
    assert set(subject_of(AUTHORITY.identify(x509.Name([together]), ()).der).split("+")) == {"CN=a", "UID=b"}
    bits = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\0\1", _type=_ASN1Type.BitString)
    assert subject_of(AUTHORITY.identify(x509.Name([bits]), ()).der) == "2.5.4.45=#03020001"


@given(st.binary(max_size=200))
def test_what_is_no_certificate_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        subject_of(data)


@given(st.data())
def test_a_damaged_certificate_is_a_value_error_or_a_name(data: st.DataObject) -> None:
    whole = bytearray(DAMAGED)
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        assert isinstance(subject_of(bytes(whole)), str)


DAMAGED = AUTHORITY.identify("alice", ()).der


def test_the_names_of_hosts_of_a_certificate() -> None:
    both, one = (alternative_names(Authority().identify(hosts=hosts).der) for hosts in (("a.b", "10.0.0.1"), ("a.b",)))
    assert both == {b"\x82\x03a.b", b"\x87\x04\x0a\x00\x00\x01"} and one < both
    assert alternative_names(Authority().identify(hosts=()).der) == frozenset()


@given(st.binary(max_size=300))
def test_names_of_what_is_no_certificate(data: bytes) -> None:
    with pytest.raises(ValueError, match="invalid certificate"):
        alternative_names(data)


def test_a_number_of_more_bytes_than_java_takes_is_refused_before_it_is_read() -> None:
    def named(size: int) -> bytes:
        return certificate(attribute(b"\x55" + b"\1" * (size - 1), b"x"))

    assert subject_of(named(4096)).endswith(".1=#0c0178")
    with pytest.raises(ValueError, match="invalid certificate"):
        subject_of(named(4097))
