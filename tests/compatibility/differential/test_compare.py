"""The comparison itself: what counts as equal, as explained, and as wrong."""

from __future__ import annotations

from tests.compatibility.differential.compare import compare
from tests.compatibility.differential.engine import Explained, Step
from tests.compatibility.differential.golden import plain

ODD = Explained("odd", "a reason", "topics.*.code")


def test_equal_answers_are_equal() -> None:
    verdict = compare([Step("one", {"code": 0})], [("one", {"code": 0})])
    assert (verdict.equal, verdict.explained, verdict.faults) == (1, 0, [])


def test_a_difference_is_a_fault() -> None:
    verdict = compare([Step("one", {"topics": {"t": {"code": 0}}})], [("one", {"topics": {"t": {"code": 3}}})])
    assert verdict.faults == ["one: topics.t.code: ours 0, Kafka's 3"]


def test_an_explained_difference_is_none() -> None:
    verdict = compare(
        [Step("one", {"topics": {"a.b": {"code": 0}}}, (ODD,))], [("one", {"topics": {"a.b": {"code": 3}}})]
    )
    assert (verdict.equal, verdict.explained, verdict.faults) == (0, 1, [])


def test_an_explanation_covers_only_its_paths() -> None:
    ours, theirs = {"topics": {"t": {"code": 0, "id": 1}}}, {"topics": {"t": {"code": 3, "id": 2}}}
    assert compare([Step("one", ours, (ODD,))], [("one", theirs)]).faults == ["one: topics.t.id: ours 1, Kafka's 2"]


def test_an_explanation_that_is_no_longer_true_is_a_fault() -> None:
    answer = {"topics": {"t": {"code": 0}}}
    (fault,) = compare([Step("one", answer, (ODD,))], [("one", answer)]).faults
    assert "no difference at topics.*.code any more: odd" in fault


def test_what_one_side_has_not_is_a_difference() -> None:
    assert compare([Step("one", {"a": 1})], [("one", {})]).faults == ["one: a: ours 1, Kafka's (absent)"]
    assert compare([Step("one", [1])], [("one", [1, 2])]).faults == ["one: 1: ours (absent), Kafka's 2"]


def test_only_kafkalite_may_say_more() -> None:
    said, silent = {"error_message": "<message>"}, {"error_message": None}
    assert compare([Step("one", said)], [("one", silent)]).faults == []
    assert len(compare([Step("one", silent)], [("one", said)]).faults) == 1


def test_other_steps_are_a_fault() -> None:
    assert len(compare([Step("one", 1)], [("two", 1)]).faults) == 1
    assert len(compare([Step("one", 1)], [("one", 1), ("two", 1)]).faults) == 1


def test_an_answer_survives_its_file() -> None:
    assert plain({"a": (1, None), "b": "\u00ff"}) == {"a": [1, None], "b": "\u00ff"}
