"""How hypothesis runs here: without deadlines, because nothing is timed in tests."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "remit",
    settings.get_profile("ci" if "CI" in os.environ else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("remit"), max_examples=3_000)
settings.load_profile("remit")
