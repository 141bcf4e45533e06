"""Rules that turn the distinguished name of a certificate into the name of a user: ssl.principal.mapping.rules.

    RULE:^CN=([^,]+),OU=.*$/$1/L,DEFAULT

The first rule whose pattern matches the whole name counts; DEFAULT takes the name as it is. A name that no rule matches
belongs to nobody, and its connection is closed.
Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper, KIP-371.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|\Z)")
_REFERENCE = re.compile(r"\\(.)|\$(\d)", re.DOTALL)


class MappingRule(NamedTuple):
    """One rule; without a pattern it is DEFAULT. `case` is L, U or empty."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The user; None if the pattern does not match."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None

        def insert(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            number = int(reference[2])
            return (found[number] or "") if number <= found.re.groups else reference[0]

        user = _REFERENCE.sub(insert, self.replacement)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules in `text`. Raises ValueError saying what is wrong."""
    rules = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _RULE.match(text, at)
        if found is None:
            raise ValueError(
                f"must be a list of DEFAULT and RULE:pattern/replacement/[LU], and '{text[at : at + 80]}' is not"
            )
        at = found.end()
        default, pattern, replacement, case = found.groups()
        if default:
            rules.append(MappingRule())
            continue
        try:
            rules.append(MappingRule(re.compile(pattern.replace("\\/", "/")), replacement, case))
        except re.error as fault:
            raise ValueError(f"has a pattern that makes no sense, '{pattern[:80]}': {fault}") from None
    return tuple(rules) or (MappingRule(),)


def map_name(rules: Sequence[MappingRule], name: str) -> str | None:
    """The user for a distinguished name; None if no rule matches."""
    return next((user for rule in rules if (user := rule.apply(name)) is not None), None)
