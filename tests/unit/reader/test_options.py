"""Options that are allowed, and the errors for those that are not."""

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.reader.options import parse_options
from kafkalite.reader.planning.read_options import EARLIEST, LATEST

GOOD = {"path": "/data", "subscribe": "orders"}


def test_what_is_not_said_has_its_default() -> None:
    options = parse_options(GOOD)
    assert (options.path, options.topics) == ("/data", ("orders",))
    assert (options.starting_offsets, options.ending_offsets) == (EARLIEST, LATEST)
    assert (options.include_headers, options.min_partitions, options.fail_on_data_loss) == (False, 1, True)


def test_names_may_have_any_case_and_kafka_s_own_are_let_pass() -> None:
    options = parse_options(
        {
            "PATH": "/data",
            "assign": '{"orders": [1, 0, 1]}',
            "includeheaders": "TRUE",
            "startingOffsets": '{"orders": {"0": 23, "1": -2}}',
            "endingoffsets": '{"orders": {"0": -1, "1": 7}}',
            "minPartitions": "8",
            "failOnDataLoss": "false",
            "kafka.bootstrap.servers": "ignored:9092",
        }
    )
    assert options.assigned == {"orders": (1, 0)}
    assert options.starting_offsets == {"orders": {0: 23, 1: EARLIEST}}
    assert options.ending_offsets == {"orders": {0: LATEST, 1: 7}}
    assert (options.include_headers, options.min_partitions, options.fail_on_data_loss) == (True, 8, False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"path": ""}, "set the option 'path'"),
        ({"subscribePattern": "o.*"}, "found 'subscribe' and 'subscribePattern'"),
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"maxOffsetsPerTrigger": "5"}, "no option 'maxoffsetspertrigger'"),
        ({"startingOffsets": "newest"}, "it may be earliest, latest, or offsets as JSON"),
        ({"endingOffsets": "earliest"}, "it may be latest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "has -2 for partition '0'"),
        ({"startingOffsets": '{"orders": {"0": "5"}}'}, "has '5' for partition '0'"),
        ({"startingOffsets": '{"orders": 5}'}, "by partition for 'orders'"),
        ({"startingOffsets": "{orders"}, "is no JSON"),
        ({"includeHeaders": "yes"}, "may be true or false"),
        ({"minPartitions": "0"}, "a number from 1 on"),
    ],
)
def test_a_fault_is_one_line_that_names_the_option(changes: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse_options(GOOD | changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "choice",
    [{}, {"subscribePattern": "("}, {"assign": "[]"}, {"assign": '{"a": 0}'}, {"assign": '{"a": [-1]}'}],
    ids=str,
)
def test_topics_are_named_in_one_good_way(choice: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(choice), "found none")):
        parse_options({"path": "/data"} | choice)
