from types import SimpleNamespace

import made_runs
import pytest


@pytest.fixture
def made() -> SimpleNamespace:
    """The makers of runs and results."""
    names = ("candidate", "prompt", "plan", "generation", "row", "result")
    return SimpleNamespace(**{name: getattr(made_runs, name) for name in names})
