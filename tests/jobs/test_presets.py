"""FedAvg with an optimiser at the server, by the names of the literature."""

import pytest

from fedmr_med.jobs.catalog import job_for
from fedmr_med.jobs.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_fedavg_with_its_server(name: str) -> None:
    job = job_for("fmnist", name, model="small_cnn")
    assert job.method.name == "fedavg"
    assert job.federation.server == PRESETS[name]
    assert job.name == f"fmnist_{name}_P5C2"


def test_settings_change_a_preset() -> None:
    job = job_for("fmnist", "fedavgm", changes={"federation.server.momentum": 0.9})
    assert job.federation.server == PRESETS["fedavgm"].model_copy(update={"momentum": 0.9})
