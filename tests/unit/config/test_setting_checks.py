"""Parsers of single settings: a value in its plain form, or a refusal that says what is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.config.setting_checks import (
    parse_directories,
    parse_endpoint_identification,
    parse_gzip_level,
    parse_throttled_replicas,
    parse_zookeeper_connect,
)


@given(st.integers(-20, 20))
def test_gzip_has_nine_levels_and_a_default(level: int) -> None:
    if level in (-1, *range(1, 10)):
        assert parse_gzip_level(f" {level} ") == level
    else:
        with pytest.raises(ValueError, match="from 1 to 9, or -1"):
            parse_gzip_level(str(level))


def test_directories_are_separated_by_commas() -> None:
    assert parse_directories(" /a , ,/b c,") == "/a,/b c"
    with pytest.raises(ValueError, match="must name a directory"):
        parse_directories(" , ")


class TestZooKeeperConnect:
    @pytest.mark.parametrize(
        ("given", "understood"),
        [
            ("zk1:2181", "zk1:2181"),
            (" zk1 , zk2:2182/kafka/ ", "zk1:2181,zk2:2182/kafka"),
            ("[::1],[fe80::1]:2182/a/b", "[::1]:2181,[fe80::1]:2182/a/b"),
            ("[::1], [::1]:2182,h,10.0.0.1:1/a/b/", "[::1]:2181,[::1]:2182,h:2181,10.0.0.1:1/a/b"),
            ("zk1/", "zk1:2181"),
            ("  ", None),
        ],
    )
    def test_has_all_ports_and_no_blanks(self, given: str, understood: str | None) -> None:
        assert parse_zookeeper_connect(given) == understood

    @pytest.mark.parametrize(
        "given",
        [
            "zk1:",
            "zk1:0",
            "zk1:x",
            "zk1:65536",
            "zk1:\u0662",
            ",",
            "/kafka",
            "h:1:2",
            "h:1,h:2:3",
            "::1",
            "[::1",
            "[::1]:2:3",
        ],
    )
    def test_needs_a_server_with_one_port(self, given: str) -> None:
        with pytest.raises(ValueError, match="must be host:port"):
            parse_zookeeper_connect(given)

    @pytest.mark.parametrize("given", ["zk1//a", "zk1/a/../b", "zk1/."])
    def test_has_a_chroot_that_is_a_path(self, given: str) -> None:
        with pytest.raises(ValueError, match="must have a chroot such as /kafka"):
            parse_zookeeper_connect(given)

    @given(
        st.lists(
            st.tuples(st.sampled_from(["zk", "10.0.0.1", "[::1]"]), st.integers(1, 65_535)), min_size=1, max_size=4
        ),
        st.lists(st.sampled_from(["kafka", "a-b", "x.y"]), max_size=3),
    )
    def test_the_plain_form_is_understood_as_itself(self, servers: list[tuple[str, int]], chroot: list[str]) -> None:
        text = ",".join(f"{host}:{port}" for host, port in servers) + "".join(f"/{part}" for part in chroot)
        assert parse_zookeeper_connect(text) == text


def test_the_endpoint_is_identified_as_https_does_or_not_at_all() -> None:
    assert [parse_endpoint_identification(text) for text in ("https", " ", "")] == ["HTTPS", "", ""]
    with pytest.raises(ValueError, match="must be HTTPS or empty"):
        parse_endpoint_identification("LDAPS")


@pytest.mark.parametrize(
    ("text", "words"),
    [("", ()), ("*", ("*",)), (" 0:1, 12:1001 ", ("0:1", "12:1001")), ("0:1,,", ("0:1",))],
)
def test_throttled_replicas_are_named_one_by_one_or_all_at_once(text: str, words: tuple[str, ...]) -> None:
    assert parse_throttled_replicas(text) == words


@pytest.mark.parametrize("text", ["0", "0:", ":1", "*,0:1", "0:-1", "none", "0:1:2", "0:x", "٣:1"])
def test_a_throttled_replica_is_a_partition_and_a_broker(text: str) -> None:
    with pytest.raises(ValueError, match="partition:broker"):
        parse_throttled_replicas(text)
