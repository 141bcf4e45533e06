"""Options of a write."""

from __future__ import annotations

import pytest

from kafkalite.client.producer.options import ACKS_ALL, ProducerOptions, parse_write_options, table
from kafkalite.common.errors import ConfigError
from tests.support.places import ROOT

SERVERS = {"kafka.bootstrap.servers": "one:9092,two:9092"}


def test_defaults_are_those_of_an_idempotent_producer() -> None:
    options = parse_write_options(SERVERS)
    assert options.producer == ProducerOptions("one:9092,two:9092")
    assert (options.producer.acks, options.producer.idempotent) == (ACKS_ALL, True)
    assert (options.topic, options.transactional, options.include_timestamp) == (None, False, False)


def test_names_may_have_any_case_and_the_prefix_may_be_missing() -> None:
    options = parse_write_options(
        {
            "Bootstrap.Servers": "one:9092",
            "KAFKA.compression.type": "zstd",
            "kafka.Batch.Size": "1000",
            "kafka.acks": "1",
        }
    )
    assert options.producer == ProducerOptions("one:9092", acks=1, idempotent=False, codec=4, batch_bytes=1000)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "set the option 'kafka.bootstrap.servers'"),
        ({"kafka.bootstrap.servers": "nowhere"}, "must be HOST:PORT"),
        ({**SERVERS, "topics": "t"}, "no option 'topics' for writing; did you mean 'topic'"),
        ({**SERVERS, "kafka.compresion.type": "lz4"}, "did you mean 'kafka.compression.type'"),
        ({**SERVERS, "kafka.security.protocol": "TLS"}, "security.protocol=TLS is not one of PLAINTEXT, SSL, SASL"),
        ({**SERVERS, "kafka.security.protocol": "SASL_SSL"}, "sasl.jaas.config is not set"),
        ({**SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no"}, "/no cannot be read"),
        ({**SERVERS, "kafka.compression.type": "lzma"}, "'compression.type' is 'lzma'; it may be none, gzip"),
        ({**SERVERS, "kafka.acks": "2"}, "'acks' is '2'"),
        ({**SERVERS, "kafka.acks": "1", "kafka.enable.idempotence": "true"}, "needs kafka.acks=all"),
        ({**SERVERS, "transactional": "true", "kafka.acks": "0"}, "transactional=true needs kafka.acks=all"),
        ({**SERVERS, "kafka.batch.size": "0"}, "'batch.size' is '0'; it may be a number from 1"),
        ({**SERVERS, "kafka.batch.size": "many"}, "'batch.size' is 'many'; it may be a number from 1"),
        ({**SERVERS, "kafka.max.in.flight.requests.per.connection": "6"}, "a number from 1 to 5"),
        ({**SERVERS, "topic": " "}, "'topic' is empty"),
    ],
)
def test_a_slip_is_an_error_that_names_the_option(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("(", r"\(")):
        parse_write_options(options)


def test_the_page_about_spark_shows_the_table() -> None:
    page = (ROOT / "docs/spark.md").read_text()
    assert page.split("<!-- options of a write -->\n")[1].split("\n<!-- end of options of a write -->")[0] == table()
