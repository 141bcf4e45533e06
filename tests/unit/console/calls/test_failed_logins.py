"""A client that guesses passwords has to wait; others do not."""

from __future__ import annotations

from kafkalite.console.calls.route import OF_A_USER_MAX, OF_AN_ADDRESS_MAX, WINDOW_S, FailedLogins


def test_a_guesser_waits_and_the_user_elsewhere_does_not() -> None:
    failures = FailedLogins()
    for _ in range(OF_A_USER_MAX):
        assert failures.may_try("10.0.0.1", "alice", 0.0)
        failures.add("10.0.0.1", "alice", 0.0)
    assert not failures.may_try("10.0.0.1", "alice", WINDOW_S)
    assert failures.may_try("10.0.0.1", "bob", 0.0)
    assert failures.may_try("10.0.0.2", "alice", 0.0)
    assert failures.may_try("10.0.0.1", "alice", WINDOW_S + 1)


def test_one_password_for_many_names_has_its_limit_too() -> None:
    failures = FailedLogins()
    for number in range(OF_AN_ADDRESS_MAX):
        assert failures.may_try("10.0.0.1", f"user-{number}", 0.0)
        failures.add("10.0.0.1", f"user-{number}", 0.0)
    assert not failures.may_try("10.0.0.1", "somebody", 0.0)
    assert failures.may_try("10.0.0.2", "somebody", 0.0)


def test_what_is_kept_is_bounded() -> None:
    failures = FailedLogins()
    for number in range(10_000):
        failures.add(f"address-{number}", "alice", 0.0)
    assert len(failures._times_s) <= 2_000
    assert failures.may_try("address-0", "alice", 0.0)
    failures.add("address-9999", "alice", 0.0)
    assert failures._recent(("address-9999", "alice"), 0.0) == 2
