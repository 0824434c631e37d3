"""What a record comes to."""

from hypothesis import given
from hypothesis import strategies as st

from hookbus_schemas import HookDecision, Outcome, Verdict
from hookbus_subscribers.stats import Latencies, Stats
from hooking import make_event


@given(st.lists(st.floats(0.01, 10_000), min_size=1), st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_percentile_is_at_most_an_eighth_above_the_exact_one(times: list[float], share: float) -> None:
    """And never below it."""
    latencies = Latencies()
    for elapsed in times:
        latencies.add(elapsed)
    ordered = sorted(times)
    exact = next(value for place, value in enumerate(ordered, start=1) if place >= share * len(ordered))
    assert exact * 0.999999 <= latencies.percentile(share) <= exact * 1.125


def test_a_time_beyond_the_last_class_counts_in_it() -> None:
    """Nothing is left out."""
    latencies = Latencies()
    latencies.add(1e9)
    assert latencies.percentile(0.5) == 10_000


def test_outcomes_denials_and_decisions_are_counted() -> None:
    """Of each hook, also what it would have denied as a shadow."""
    stats = Stats()
    said = [
        HookDecision(hook="a", decision=Verdict.ALLOW, elapsed_ms=1.0),
        HookDecision(hook="b", decision=Verdict.DENY, elapsed_ms=2.0, enforcement="shadow"),
        HookDecision(hook="c", decision=Verdict.TIMEOUT, elapsed_ms=5000.0, failed_open=True),
    ]
    for number, outcome in enumerate((Outcome.COMPLETED, Outcome.DENIED)):
        stats.add(make_event(number, outcome).model_copy(update={"decisions": tuple(said)}))
    assert stats.outcomes == {Outcome.COMPLETED: 1, Outcome.DENIED: 1}
    assert stats.denials.total() == 1
    assert {
        name: (dict(hook.decisions), hook.failed_open, hook.shadow_denials) for name, hook in stats.hooks.items()
    } == {
        "a": ({Verdict.ALLOW: 2}, 0, 0),
        "b": ({Verdict.DENY: 2}, 0, 2),
        "c": ({Verdict.TIMEOUT: 2}, 2, 0),
    }
