"""Large requests that do not come to an end share a bounded memory; who was silent longest gives way."""

from __future__ import annotations

from kafkalite.network.unfinished import UnfinishedRequests


class Sender:
    def __init__(self, all_of_them: UnfinishedRequests) -> None:
        self.all_of_them = all_of_them
        self.gone = False

    def give_way(self) -> None:
        self.gone = True
        self.all_of_them.note(self, 0)


def test_the_one_that_was_silent_longest_gives_way() -> None:
    unfinished = UnfinishedRequests(100)
    first, second, third = (Sender(unfinished) for _ in range(3))
    unfinished.note(first, 40)
    unfinished.note(second, 40)
    unfinished.note(first, 50)  # it goes on
    unfinished.note(third, 30)
    assert (first.gone, second.gone, third.gone) == (False, True, False)
    assert unfinished.bytes_held == 80


def test_what_is_whole_takes_nothing() -> None:
    unfinished = UnfinishedRequests(100)
    one, other = Sender(unfinished), Sender(unfinished)
    unfinished.note(one, 90)
    unfinished.note(one, 0)
    unfinished.note(other, 100)
    assert not one.gone and not other.gone and unfinished.bytes_held == 100


def test_one_alone_above_the_bound_gives_way_itself() -> None:
    unfinished = UnfinishedRequests(100)
    one = Sender(unfinished)
    unfinished.note(one, 101)
    assert one.gone and unfinished.bytes_held == 0
