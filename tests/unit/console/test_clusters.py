"""Several clusters in one console, a path in front of it, and what a proxy may do with that."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from kafkalite.common.errors import ConfigError
from kafkalite.console.clusters import ServedCluster, checked_base, read_clusters
from kafkalite.console.server import ConsoleServer
from kafkalite.testing import Broker


def read(path: Path, text: str, *, may_write: bool = True) -> list[ServedCluster]:
    path.write_text(text)
    return read_clusters(str(path), may_write=may_write, read_properties=lambda file: {"file": Path(file).name})


def test_a_file_names_clusters_and_which_may_be_changed(tmp_path: Path) -> None:
    text = """
        [production]
        bootstrap = "kafka1:9092"
        properties = "production.properties"
        schema_registry = "http://registry:8081"
        [test]
        bootstrap = "localhost:9092"
        mirrors = "http://mirror:9465"
        write = true
        [test.properties]
        "security.protocol" = "PLAINTEXT"
    """
    production, test = read(tmp_path / "clusters.toml", text)
    assert production == ServedCluster(
        "kafka1:9092", {"file": "production.properties"}, False, "http://registry:8081", "production"
    )
    assert test == ServedCluster(
        "localhost:9092", {"security.protocol": "PLAINTEXT"}, True, None, "test", "http://mirror:9465"
    )
    assert not any(one.may_write for one in read(tmp_path / "clusters.toml", text, may_write=False))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "one to"),
        ("[a", "a.toml"),
        ("[a]\nwrite = true", "no bootstrap"),
        ('["../x"]\nbootstrap = "b:1"', "must be a table"),
        ('[a]\nbootstrap = "b:1"\nwrite = "yes"', "'write'"),
        ('[a]\nbootstrap = "b:1"\nbootstap = "c:1"', "'bootstap'"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(tmp_path / "a.toml", text)


def test_a_base_path_is_a_path() -> None:
    assert checked_base("/kafka/") == "/kafka" and checked_base("/") == checked_base("") == ""
    for wrong in ("kafka", "/a b", "//evil.example", '/"x'):
        with pytest.raises(ConfigError):
            checked_base(wrong)


def test_each_cluster_has_its_own_path_session_and_right_to_write() -> None:
    with Broker() as one, Broker() as other:
        clusters = [
            ServedCluster(one.bootstrap_servers, {}, True, name="one"),
            ServedCluster(other.bootstrap_servers, {}, False, name="other"),
        ]
        other.create_topic("only.here")
        server = ConsoleServer(clusters, "127.0.0.1", 0, version="test", base="/kafka", names=["kafka.example"])
        try:
            with TestClient(server.application, base_url="http://kafka.example", follow_redirects=False) as client:
                for path in ("/kafka", "/kafka/", "/"):
                    assert client.get(path).headers["location"] == "/kafka/one/"
                assert client.get("/kafka/one").headers["location"] == "/kafka/one/"
                assert client.get("/kafka/none/").status_code == 404
                page = client.get("/kafka/one/topics/orders").text
                assert 'data-base="/kafka/one"' in page and 'src="/kafka/one/static/main.js"' in page
                assert client.get("/kafka/one/static/main.js").status_code == 200
                assert client.get("/one/static/main.js").status_code == 200  # a proxy that strips the base
                sessions = [client.get(f"/kafka/{name}/api/session").json() for name in ("one", "other")]
                assert [each["write"] for each in sessions] == [True, False]
                assert sessions[0]["clusters"] == [
                    {"name": "one", "path": "/kafka/one/"},
                    {"name": "other", "path": "/kafka/other/"},
                ]
                paths = sorted(each.path for each in client.cookies.jar)
                assert paths == ["/kafka/one/", "/kafka/other/"]
                topics = [client.get(f"/kafka/{name}/api/topics").json()["total"] for name in ("one", "other")]
                assert topics == [0, 1]
        finally:
            server.close()


def test_files_are_compressed_for_browsers_that_take_it() -> None:
    cluster = ServedCluster("127.0.0.1:1", {}, False)
    server = ConsoleServer([cluster], "127.0.0.1", 0, version="test")
    try:
        with TestClient(server.application, base_url="http://127.0.0.1") as client:
            plain = client.get("/static/main.js", headers={"accept-encoding": "identity"})
            small = client.get("/static/main.js", headers={"accept-encoding": "gzip"})
            assert plain.text == small.text and small.headers["content-encoding"] == "gzip"
            assert int(small.headers["content-length"]) < int(plain.headers["content-length"]) / 2
            again = client.get("/static/main.js", headers={"if-none-match": small.headers["etag"]})
            assert again.status_code == 304 and plain.headers["etag"] != small.headers["etag"]
    finally:
        server.close()


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="--tls-certificate"):
        ConsoleServer(
            [ServedCluster("127.0.0.1:1", {}, False)],
            "127.0.0.1",
            0,
            version="test",
            certificate=(str(tmp_path / "x.pem"), str(tmp_path / "x.pem")),
        )
