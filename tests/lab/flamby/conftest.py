"""FLamby for the tests that compare with it: a checkout named by FEDMR_MED_FLAMBY, or importable; else they skip."""

import os
import sys
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def flamby_strategies() -> ModuleType:
    checkout = os.environ.get("FEDMR_MED_FLAMBY")
    if checkout and checkout not in sys.path:
        sys.path.insert(0, checkout)
    pytest.importorskip("flamby", reason="FLamby is not there: name a checkout in FEDMR_MED_FLAMBY")
    return pytest.importorskip("flamby.strategies")
