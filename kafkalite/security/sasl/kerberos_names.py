"""Names of Kerberos as names of users, by sasl.kerberos.principal.to.local.rules.

    DEFAULT                                 alice@OURS and alice/host@OURS are alice
    RULE:[n:FORMAT](PATTERN)s/FROM/TO/g/L   for names of n parts; $0 is the realm, $1 and $2 are the parts

The first rule that applies counts. In PATTERN and FROM stand regular expressions; (PATTERN), s/// and /L or /U may be
left out. A name that no rule knows, or that still has an @ or a / in the end, is nobody.
Source: org.apache.kafka.common.security.kerberos.{KerberosName, KerberosRule, KerberosShortNamer}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

ShortName = Callable[[str], str]
"""The name of a user for that of a Kerberos principal. Raises ValueError for one that is nobody."""

_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)\Z")
_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<old>[^/]*)/(?P<new>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER = re.compile(r"\$(\d+)")
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
    rule = _RULE.fullmatch(text.strip())
    if rule is None:
        raise ValueError(
            f"has {text[:_SHOWN_CHARS]!r}, which is neither DEFAULT nor RULE:[n:FORMAT](PATTERN)s/FROM/TO/g/L"
        )
    if rule["default"]:
        return lambda parts: _simple(parts[1]) if parts[0] == default_realm else None
    try:
        count, match = int(rule["parts"]), re.compile(rule["match"]) if rule["match"] is not None else None
        old = re.compile(rule["old"]) if rule["old"] is not None else None
    except (re.error, ValueError) as fault:
        raise ValueError(f"has {text[:_SHOWN_CHARS]!r}, which is no rule: {fault}") from None
    form, new, limit = rule["format"], _replacement(rule["new"] or ""), 0 if rule["all"] else 1
    highest = max(map(int, _PARAMETER.findall(form)), default=0)
    if highest > count:
        raise ValueError(f"has {text[:_SHOWN_CHARS]!r}, whose ${highest} is more than the {count} parts of a name")

    def apply(parts: Sequence[str]) -> str | None:
        if len(parts) - 1 != count:
            return None
        base = _PARAMETER.sub(lambda found: parts[int(found[1])], form)
        if match is not None and match.fullmatch(base) is None:
            return None
        short = base if old is None else old.sub(new, base, count=limit)
        short = short.lower() if rule["case"] == "L" else short.upper() if rule["case"] == "U" else short
        return _simple(short)

    return apply


def _replacement(text: str) -> str:
    """Of Python, for one of Java: its $1 is \\g<1>, and a backslash takes the next character as it is."""
    pieces = re.findall(r"\\(.)|\$(\d)|([^\\$]+|.)", text, re.DOTALL)
    return "".join(
        f"\\g<{group}>" if group else (taken or plain).replace("\\", "\\\\") for taken, group, plain in pieces
    )


def _simple(name: str) -> str:
    if _NOT_SIMPLE.search(name):
        raise ValueError(
            f"sasl.kerberos.principal.to.local.rules makes {name[:_SHOWN_CHARS]!r}, with an @ or a / in it"
        )
    return name
