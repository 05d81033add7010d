"""How long a supervisor waits before it starts a dead process again."""

from duly.worker.restart_backoff import RestartBackoff


def test_the_first_restart_comes_almost_at_once_and_the_next_ones_later_and_later() -> None:
    restarts = RestartBackoff()

    pauses = [restarts.pause_after(0.5) for _ in range(11)]

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_the_backoff_of_a_process_that_lived_long_starts_over() -> None:
    restarts = RestartBackoff()
    for _ in range(6):
        restarts.pause_after(59.9)

    assert restarts.pause_after(60.0) == 0.1
    assert restarts.pause_after(0.0) == 0.2
