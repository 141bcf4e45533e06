"""Sources of settings: properties files, the environment, and the generated file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import annotated, parse_properties, read_environment, read_properties
from tests.support.places import ROOT


def test_java_properties_with_every_trick(tmp_path):
    text = (
        "# comment\n  ! comment\n\n"
        "plain=value with spaces \n"
        "colon : x\r\n"
        "blank   y=z\n"
        "long=one,\\\n    two,\\\r\n\t three\n"
        "path=C:\\\\tmp\\t\\u00e9\\ud83d\\ude00\n"
        "odd\\ na\\:me\\=1=v\n"
        "empty\n"
        "plain2==\n"
        "twice=1\ntwice=2\n"
        "end=goes on\\"
    )
    expected = {
        "plain": "value with spaces ",
        "colon": "x",
        "blank": "y=z",
        "long": "one,two,three",
        "path": "C:\\tmp\té😀",
        "odd na:me=1": "v",
        "empty": "",
        "plain2": "=",
        "twice": "2",
        "end": "goes on",
    }
    assert parse_properties(text) == expected
    file = tmp_path / "p"
    file.write_bytes("name=é".encode("latin-1"))
    assert read_properties(str(file)) == {"name": "é"}
    file.write_text("ok=1\nbad=\\u12\n")
    with pytest.raises(ConfigError, match=r"p: line 2: \\u needs four hexadecimal digits$"):
        read_properties(str(file))
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*: No such file or directory"):
        read_properties(str(tmp_path / "none"))


@given(st.text())
def test_any_text_is_properties_or_a_plain_fault(text):
    try:
        found = parse_properties(text)
    except ValueError as fault:
        assert "line" in str(fault)
    else:
        for name, value in found.items():
            (name + value).encode()


def test_the_environment_speaks_as_in_kafkas_image():
    environment = {
        "KAFKA_LOG_SEGMENT_BYTES": "1",
        "KAFKA_SOME__NAME_WITH___DASH": "2",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_JMX_PORT": "9",
        "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
        "KAFKA_VERSION": "3.9",
        "KAFKA_": "x",
        "HOME": "/root",
    }
    assert read_environment(environment) == {"log.segment.bytes": "1", "some_name.with-dash": "2"}


def test_the_annotated_file_is_the_table():
    text = (ROOT / "config" / "server.properties").read_text()
    assert text == annotated(BrokerConfig.settings), "run: python -m kafkalite config > config/server.properties"
    config = BrokerConfig.load(parse_properties(text))
    assert config.warnings == ()
    changed = {name for name, value in config.values().items() if value != getattr(BrokerConfig(), name)}
    assert changed == {"log_dirs", "group_initial_rebalance_delay_ms"}
    uncommented = parse_properties(text.replace("\n#", "\n"))
    assert {s.name for s in BrokerConfig.settings} <= uncommented.keys()
