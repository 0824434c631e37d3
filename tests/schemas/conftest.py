"""Hypothesis draws the same examples in every run: a test that fails for one person fails for all."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "same-every-run", derandomize=True, max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-every-run")
