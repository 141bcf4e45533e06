"""BrokerReport as the console asks for it: a report of one broker as values of JSON."""

from __future__ import annotations

import json
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, Refused, Unanswered, name_of_error
from kafkalite.common.text import read_json
from kafkalite.protocol.messages.broker_report import BrokerReportRequest
from kafkalite.protocol.messages.log_dirs import COUNTS, DescribeLogDirsRequest

_VERSION = 0
_LOG_DIRS_VERSION = 4


def ask_report(client: BlockingClient, kind: str, **arguments: Any) -> Any:
    """Raises Refused with the broker's sentence, Unanswered."""
    answer = client.ask(BrokerReportRequest(kind=kind, arguments=json.dumps(arguments)), _VERSION)
    if answer.error_code:
        raise Refused(answer.error_message or name_of_error(answer.error_code))
    try:
        return read_json(bytes(answer.content))
    except ValueError as fault:
        raise Unanswered(f"the broker's report makes no sense: {fault}") from None


def is_kafkalite(client: BlockingClient) -> bool | None:
    """Whether a broker knows reports, asked by a request that every broker answers; None if it does not say (it needs
    DESCRIBE of the cluster). Raises Unanswered."""
    answer = client.ask(DescribeLogDirsRequest(topics=[], count_records=COUNTS), _LOG_DIRS_VERSION)
    return None if answer.error_code else bool(answer.counts_records)
