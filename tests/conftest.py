"""How hypothesis runs here, without deadlines because nothing is timed in tests, and which signals tests start with."""

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile(
    "remit",
    settings.get_profile("ci" if "CI" in os.environ else "default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("remit"), max_examples=3_000)
settings.load_profile("remit")

# Under nohup it is ignored, and processes that tests start would ignore it too.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
