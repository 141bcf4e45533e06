"""Names of Kerberos as names of users, by sasl.kerberos.principal.to.local.rules.

    DEFAULT                                 alice@OURS and alice/host@OURS are alice
    RULE:[n:FORMAT](PATTERN)s/FROM/TO/g/L   for names of n parts; $0 is the realm, $1 and $2 are the parts

The first rule that applies counts. In PATTERN and FROM stand Java's regular expressions; (PATTERN), s/// and /L or /U
may be left out. A name that no rule knows, or that still has an @ or a / in the end, is nobody.
Source: org.apache.kafka.common.security.kerberos.{KerberosName, KerberosRule, KerberosShortNamer}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kafkalite.security.java_pattern import JavaPattern, in_case

ShortName = Callable[[str], str]
"""The name of a user for that of a Kerberos principal. Raises ValueError for one that is nobody."""

_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)\Z")
_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<parts>[0-9]*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_DIGITS_MAX = 9
_NOT_SIMPLE = re.compile(r"[/@]")
_SHOWN_CHARS = 200


def short_names(rules: Sequence[str], default_realm: str) -> ShortName:
    """Raises ValueError for a rule that makes no sense."""
    parsed = [_parsed(rule, default_realm) for rule in rules]

    def short_name(principal: str) -> str:
        found = _PRINCIPAL.match(principal)
        if found is None:
            if "@" in principal:
                raise ValueError(f"the principal {principal[:_SHOWN_CHARS]!r} makes no sense")
            return principal
        name, host, realm = found.groups()
        parts = [realm, name] if host is None else [realm, name, host]
        for rule in parsed:
            short = rule(parts)
            if short is not None:
                return short
        raise ValueError(
            f"no rule of sasl.kerberos.principal.to.local.rules applies to the principal {principal[:_SHOWN_CHARS]!r}"
        )

    return short_name


def _parsed(text: str, default_realm: str) -> Callable[[Sequence[str]], str | None]:
    rule = _RULE.fullmatch(text)
    if rule is None:
        raise ValueError(
            f"has {text[:_SHOWN_CHARS]!r}, which is neither DEFAULT nor RULE:[n:FORMAT](PATTERN)s/FROM/TO/g/L"
        )
    if rule["default"]:
        return lambda parts: _simple(parts[1]) if parts[0] == default_realm else None
    try:
        count, form = _count_of(rule["parts"]), rule["format"]
        match = JavaPattern(rule["match"]) if rule["match"] is not None else None
        old = JavaPattern(rule["old"]) if rule["old"] is not None else None
    except ValueError as fault:
        raise ValueError(f"has {text[:_SHOWN_CHARS]!r}, which {fault}") from None

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
            raise ValueError(f"sasl.kerberos.principal.to.local.rules: {text[:_SHOWN_CHARS]!r} {fault}") from None

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
        raise ValueError(f"makes {name[:_SHOWN_CHARS]!r}, with an @ or a / in it")
    return name
