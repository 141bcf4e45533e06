"""Strangers take no session away from a user."""

from __future__ import annotations

from kafkalite.console.calls.route import SESSIONS_MAX, Sessions


def test_a_session_of_a_user_outlives_any_number_of_strangers() -> None:
    sessions = Sessions(lambda: 0.0, None)
    alice = sessions.begin(user="alice")
    first = sessions.begin()
    for _ in range(2 * SESSIONS_MAX):
        sessions.begin()
    assert sessions.find(alice.key) is alice
    assert sessions.find(first.key) is None


def test_among_users_the_one_that_was_idle_for_longest_makes_room() -> None:
    sessions = Sessions(lambda: 0.0, None)
    users = [sessions.begin(user=f"user-{number}") for number in range(SESSIONS_MAX)]
    assert sessions.find(users[0].key) is users[0]
    sessions.begin(user="one more")
    assert sessions.find(users[0].key) is users[0]
    assert sessions.find(users[1].key) is None
