r"""Rules that turn the distinguished name of a certificate into the name of a user: ssl.principal.mapping.rules.

    RULE:^CN=([^,]+),OU=.*$/$1/L,DEFAULT

The first rule whose pattern matches the whole name counts; DEFAULT takes the name as it is. The user is the name with
every match of the pattern replaced, and `.*` matches twice: the name, and nothing behind it. A name that no rule
matches belongs to nobody, as every name where there are no rules, and its connection is closed.
Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper, KIP-371.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.common.names import java_trim
from kafkalite.security.java_pattern import JavaPattern, in_case

_LINE_ENDS = r"\n\r\x85\u2028\u2029"
_SPACE = r"[ \t\n\x0b\f\r]*"
_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
_PART = rf"(?:\\[^{_LINE_ENDS}]|[^\\/])*"
_RULE = rf"(DEFAULT)|RULE:({_PART})/({_PART})/([LU]?)[^{_LINE_ENDS}]*?|[^{_LINE_ENDS}]*?"
_IN_LIST = re.compile(rf"{_SPACE}({_RULE}){_SPACE}(?:,{_SPACE}|{_END})")
_ALONE = re.compile(_RULE)
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
