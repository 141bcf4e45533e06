"""Principals: the owner of a connection, in the form that ACLs, quotas and audit lines use.

A principal is text, TYPE:NAME, everywhere but here; the name may contain colons. Equality is that of the text.
A certificate's owner has the distinguished name of its subject, as Java prints it by RFC 2253: the last part first,
separated by commas. Only nine kinds of parts have a keyword, any other is its number and the hexadecimal digits of its
DER: an e-mail address is 1.2.840.113549.1.9.1=#1603614062.
Source: org.apache.kafka.common.security.auth.KafkaPrincipal; sun.security.x509.{AVA.toRFC2253String,
X500Name.generateRFC2253DN}, X.690 (DER).
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.common.named_tuple import NamedTuple

USER = "User"
WILDCARD = "User:*"


def user(name: str) -> str:
    """The principal of a user."""
    return f"{USER}:{name}"


def parse_principal(text: str) -> tuple[str, str]:
    """(type, name), split at the first colon. Raises ValueError unless both are there."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"must be TYPE:NAME, such as User:alice, and '{text}' is not")
    return kind, name


def name_of(principal: str) -> str:
    """The name alone, as quotas know it."""
    return principal.partition(":")[2]


_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED = frozenset(',=+<>#;"\\')
_STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))  # UTF-8, printable, T61, IA5, general, BMP
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_OID_BYTES_MAX = 4096  # as in Java: each byte moves all bits before it
_ALTERNATIVE_NAMES = "2.5.29.17"


class _Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises ValueError if that is none."""
    try:
        fields = [each for each in _to_be_signed(certificate) if each.tag != _VERSION]
        subject = fields[4]  # behind serial number, algorithm, issuer and validity
        parts = ["+".join(map(_attribute, _elements(one.content))) for one in _elements(subject.content)]
    except (ValueError, IndexError, StopIteration):
        raise ValueError("an invalid certificate") from None
    return ",".join(reversed(parts))


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """The names, of hosts and others, for which a certificate is, all in DER. Raises ValueError if that is none."""
    try:
        for field in _to_be_signed(certificate):
            if field.tag == _EXTENSIONS:
                for extension in _elements(next(_elements(field.content)).content):
                    number, *_, value = _elements(extension.content)
                    if _oid(number.content) == _ALTERNATIVE_NAMES:
                        return frozenset(each.whole for each in _elements(next(_elements(value.content)).content))
    except (ValueError, IndexError, StopIteration):
        raise ValueError("an invalid certificate") from None
    return frozenset()


def _to_be_signed(certificate: bytes) -> Iterator[_Element]:
    """The fields of a certificate. Raises ValueError, StopIteration."""
    (outer,) = _elements(certificate)
    return _elements(next(_elements(outer.content)).content)


def _attribute(attribute: _Element) -> str:
    kind, value = _elements(attribute.content)
    number = _oid(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    characters = ["\\" + one if one in _ESCAPED else "\\00" if one == "\0" else one for one in text]
    lead, end = 0, len(characters)
    while lead < end and characters[lead] in " \r":
        lead += 1
    while end > lead and characters[end - 1] in " \r":
        end -= 1
    outside = [*range(lead), *range(end, len(characters))]
    for i in outside:
        characters[i] = "\\" + characters[i]
    return "".join(characters)


def _oid(content: bytes) -> str:
    if len(content) > _OID_BYTES_MAX:
        raise ValueError("an object identifier that is too long")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise ValueError("an object identifier that does not end")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes) -> Iterator[_Element]:
    """The elements that stand in `data` one after another."""
    at = 0
    while at < len(data):
        start = at
        if len(data) < at + 2:
            raise ValueError("an element that does not end")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[at : at + count], "big")
            at += count
            if not 0 < count <= 4:
                raise ValueError("an element of impossible size")
        if at + size > len(data):
            raise ValueError("an element that does not end")
        yield _Element(tag, data[at : at + size], data[start : at + size])
        at += size
