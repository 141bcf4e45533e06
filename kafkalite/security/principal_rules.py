"""Rules that make the name of a user of a certificate's distinguished name, or of a Kerberos principal.

    ssl.principal.mapping.rules                RULE:^CN=([^,]+),OU=.*$/$1/L,DEFAULT
    sasl.kerberos.principal.to.local.rules     RULE:[n:FORMAT](PATTERN)s/FROM/TO/g/L

Patterns are Java's. Of mapping rules the first whose pattern matches the whole name counts; DEFAULT accepts the name as
it is. The user is the name with every match of the pattern replaced, and `.*` matches twice: the name, and the empty
text behind it. A name that no rule matches belongs to no user, as every name without rules, and its connection is
closed. Of Kerberos rules the first that applies counts: DEFAULT makes alice of alice@OURS and alice/host@OURS, RULE is
for names of n parts; $0 is the realm, $1 and $2 are the parts. (PATTERN), s/// and /L or /U may be left out. A name
that no rule knows, or that still has an @ or a / in the end, belongs to no user.
Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper, KIP-371;
org.apache.kafka.common.security.kerberos.{KerberosName, KerberosRule, KerberosShortNamer}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import java_trim
from kafkalite.security.java_pattern import JavaPattern, in_case

_LINE_ENDS = r"\n\r\x85\u2028\u2029"
_SPACE = r"[ \t\n\x0b\f\r]*"
_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
_PART = rf"(?:\\[^{_LINE_ENDS}]|[^\\/])*"
_MAPPING_RULE = rf"(DEFAULT)|RULE:({_PART})/({_PART})/([LU]?)[^{_LINE_ENDS}]*?|[^{_LINE_ENDS}]*?"
_IN_LIST = re.compile(rf"{_SPACE}({_MAPPING_RULE}){_SPACE}(?:,{_SPACE}|{_END})")
_ALONE = re.compile(_MAPPING_RULE)
_NUMBER = re.compile(r"\$([0-9]+)")
_INT_MAX = (1 << 31) - 1
_SHOWN_CHARS = 80


class MappingRule(NamedTuple):
    """One rule; without a pattern it is DEFAULT. `case` is L, U or empty."""

    pattern: JavaPattern | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The user; None if the pattern does not match. Raises ValueError if none can be made of a name that does."""
        if self.pattern is None:
            return name
        try:
            if not self.pattern.matches(name):
                return None
            replacement = _with_literal_numbers(self.replacement, self.pattern.group_count)
            return in_case(self.pattern.replace(name, replacement, all_of_them=True), self.case)
        except ValueError as fault:
            shown = f"RULE:{self.pattern.text}/{self.replacement}/"[:_SHOWN_CHARS]
            raise ValueError(f"ssl.principal.mapping.rules: '{shown}' {fault}") from None


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules in `text`, of which empty ones do not count. Raises ValueError saying what is wrong."""
    rules = []
    for found in _IN_LIST.finditer(java_trim(text)):
        rule = _ALONE.match(found[1])
        if rule is None or rule.end() < len(found[1]):
            raise ValueError(
                "must be a list of DEFAULT and RULE:pattern/replacement/[LU], and "
                f"'{found[1][:_SHOWN_CHARS]}' is neither"
            )
        default, pattern, replacement, case = rule.groups()
        if default is not None:
            rules.append(MappingRule())
        elif pattern is not None:
            try:
                rules.append(MappingRule(JavaPattern(pattern), replacement, case))
            except ValueError as fault:
                raise ValueError(f"has a rule '{found[1][:_SHOWN_CHARS]}' that {fault}") from None
    return tuple(rules)


def _with_literal_numbers(replacement: str, group_count: int) -> str:
    """As Kafka: with groups in the pattern, the number of one that is not among them is text. Behind the first such
    number Kafka puts the others' backslashes at places that have moved."""
    if not group_count:
        return replacement
    changed = replacement
    for found in _NUMBER.finditer(replacement):
        if found[1].startswith("0"):
            continue
        number = int(found[1]) if len(found[1]) <= 10 else _INT_MAX + 1
        if number > _INT_MAX:
            raise ValueError(f"has the number {found[0][:_SHOWN_CHARS]}")
        while number > group_count and number >= 10:
            number //= 10
        if number > group_count:
            changed = f"{changed[: found.start()]}\\{changed[found.start() :]}"
    return changed


def map_name(rules: Sequence[MappingRule], name: str) -> str | None:
    """The user for a distinguished name; None if no rule matches. Raises ValueError if the one that does cannot make
    any, or if that takes too long."""
    return next((user for rule in rules if (user := rule.apply(name)) is not None), None)


ShortName = Callable[[str], str]
"""The name of a user for that of a Kerberos principal. Raises ValueError for one that maps to no user."""

_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)\Z")
_KERBEROS_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<parts>[0-9]*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_DIGITS_MAX = 9
_NOT_SIMPLE = re.compile(r"[/@]")
_PRINCIPAL_CHARS = 200


def short_names(rules: Sequence[str], default_realm: str) -> ShortName:
    """Raises ValueError for a rule that makes no sense."""
    parsed = [_parsed(rule, default_realm) for rule in rules]

    def short_name(principal: str) -> str:
        found = _PRINCIPAL.match(principal)
        if found is None:
            if "@" in principal:
                raise ValueError(f"the principal {principal[:_PRINCIPAL_CHARS]!r} is invalid")
            return principal
        name, host, realm = found.groups()
        parts = [realm, name] if host is None else [realm, name, host]
        for rule in parsed:
            short = rule(parts)
            if short is not None:
                return short
        raise ValueError(
            "no rule of sasl.kerberos.principal.to.local.rules applies to the principal "
            f"{principal[:_PRINCIPAL_CHARS]!r}"
        )

    return short_name


def _parsed(text: str, default_realm: str) -> Callable[[Sequence[str]], str | None]:
    rule = _KERBEROS_RULE.fullmatch(text)
    if rule is None:
        raise ValueError(
            f"has {text[:_PRINCIPAL_CHARS]!r}, which is neither DEFAULT nor RULE:[n:FORMAT](PATTERN)s/FROM/TO/g/L"
        )
    if rule["default"]:
        return lambda parts: _simple(parts[1]) if parts[0] == default_realm else None
    try:
        count, form = _count_of(rule["parts"]), rule["format"]
        match = JavaPattern(rule["match"]) if rule["match"] is not None else None
        old = JavaPattern(rule["old"]) if rule["old"] is not None else None
    except ValueError as fault:
        raise ValueError(f"has {text[:_PRINCIPAL_CHARS]!r}, which {fault}") from None

    def apply(parts: Sequence[str]) -> str | None:
        if len(parts) - 1 != count:
            return None
        base = _PARAMETER.sub(lambda found: _part(parts, found[1]), form)
        if match is not None and not match.matches(base):
            return None
        short = base if old is None else old.replace(base, rule["new"], all_of_them=rule["all"] is not None)
        return in_case(_simple(short), rule["case"])

    def named_apply(parts: Sequence[str]) -> str | None:
        try:
            return apply(parts)
        except ValueError as fault:
            raise ValueError(f"sasl.kerberos.principal.to.local.rules: {text[:_PRINCIPAL_CHARS]!r} {fault}") from None

    return named_apply


def _part(parts: Sequence[str], number: str) -> str:
    if not number or len(number) > _DIGITS_MAX or int(number) >= len(parts):
        raise ValueError(f"has ${number}, and the principal has {len(parts) - 1} parts and a realm, $0")
    return parts[int(number)]


def _count_of(digits: str) -> int:
    if not 0 < len(digits) <= _DIGITS_MAX:
        raise ValueError("has no number of parts")
    return int(digits)


def _simple(name: str) -> str:
    if _NOT_SIMPLE.search(name):
        raise ValueError(f"makes {name[:_PRINCIPAL_CHARS]!r}, with an @ or a / in it")
    return name
