"""The circuit breaker, with a clock that the test owns."""

from hookbus_executor.breaker import FAILURES, PAUSE, Breaker


def opened(at: float = 0.0) -> Breaker:
    """Return a breaker that three timeouts have opened."""
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.timed_out(at)
    return breaker


def test_it_opens_at_the_third_timeout_in_a_row() -> None:
    """Two timeouts are bad luck, three are a hook that hangs."""
    breaker = Breaker()
    assert [breaker.timed_out(0.0) for _ in range(FAILURES)] == [False, False, True]
    assert not breaker.asks(PAUSE - 0.001)


def test_an_answer_between_timeouts_starts_the_count_anew() -> None:
    """Only timeouts in a row count."""
    breaker = Breaker()
    breaker.timed_out(0.0)
    breaker.timed_out(0.0)
    breaker.answered()
    assert not breaker.timed_out(0.0)


def test_after_the_pause_exactly_one_call_tries() -> None:
    """A burst after the pause does not wait for a hook that may still hang."""
    breaker = opened()
    assert [breaker.asks(PAUSE) for _ in range(3)] == [True, False, False]


def test_an_answer_to_the_trial_closes_it() -> None:
    """A hook that came back is asked like any other."""
    breaker = opened()
    assert breaker.asks(PAUSE)
    breaker.answered()
    assert [breaker.asks(PAUSE), breaker.asks(PAUSE)] == [True, True]


def test_a_trial_that_times_out_opens_it_for_another_pause() -> None:
    """The pause counts from the trial's end."""
    breaker = opened()
    assert breaker.asks(PAUSE)
    breaker.timed_out(PAUSE + 5)
    assert not breaker.asks(PAUSE + 5 + PAUSE - 0.001)
    assert breaker.asks(PAUSE + 5 + PAUSE)


def test_a_trial_whose_caller_goes_away_leaves_room_for_another() -> None:
    """A cancelled trial must not leave the hook unasked for ever."""
    breaker = opened()
    assert breaker.asks(PAUSE)
    breaker.abandoned()
    assert breaker.asks(PAUSE)
