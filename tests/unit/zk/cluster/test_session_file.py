"""The file of a broker's sessions: what it says holds for one directory on one host, and nothing in it does harm."""

import json
import shutil

import pytest

from kafkalite.zk.cluster.session_file import FILE_NAME, SessionFile


def loaded(directory) -> SessionFile:
    sessions = SessionFile(directory)
    sessions.load()
    return sessions


def test_the_last_sessions_are_remembered(tmp_path):
    assert 1 not in loaded(tmp_path)
    for session_id in (*range(1, 20), -5):
        loaded_one = loaded(tmp_path)
        loaded_one.add(session_id)
        assert session_id in loaded_one
    found = loaded(tmp_path)
    assert all(each in found for each in (-5, 19, 13)) and 12 not in found
    assert (1 << 64) - 5 in found, "ZooKeeper counts with a sign, its log without"


def test_one_that_came_with_a_copy_says_nothing(tmp_path):
    (tmp_path / "one").mkdir()
    loaded(tmp_path / "one").add(7)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    assert 7 in loaded(tmp_path / "one") and 7 not in loaded(tmp_path / "two")
    path = tmp_path / "one" / FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": "another"}))
    assert 7 not in loaded(tmp_path / "one")


@pytest.mark.parametrize("content", ["", "{", "[]", "7", "{}", '{"host":1}', "\x00"])
def test_nonsense_is_nothing(tmp_path, content):
    (tmp_path / FILE_NAME).write_text(content)
    sessions = loaded(tmp_path)
    sessions.add(3)
    assert 3 in loaded(tmp_path)


def test_a_file_that_cannot_be_written_is_only_said(tmp_path, caplog):
    sessions = SessionFile(tmp_path / "nowhere")
    sessions.add(3)
    assert 3 in sessions and "cannot write" in caplog.text
