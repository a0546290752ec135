"""FedAvg with other settings, by names of their own."""

import pytest

from fedmr_med.config import ServerConfig
from fedmr_med.jobs.catalog import isic_job, job_for, own_job
from fedmr_med.jobs.presets import PRESETS
from fedmr_med.lab.bench.request import BenchRequest
from tests.helpers.errors import raises

SERVERS = {
    "fedavgm": ServerConfig(optimizer="sgd", momentum=0.5),
    "fedadam": ServerConfig(optimizer="adam", lr=0.01),
    "fedyogi": ServerConfig(optimizer="yogi", lr=0.01),
    "fedadagrad": ServerConfig(optimizer="adagrad", lr=0.01, betas=(0.0, 0.99)),
}


@pytest.mark.parametrize("name", SERVERS)
def test_fedavg_with_an_optimiser_at_the_server(name: str) -> None:
    job = job_for("fmnist", name, model="small_cnn")
    assert job.method.name == "fedavg"
    assert job.federation.server == SERVERS[name]
    assert job.name == f"fmnist_{name}_P5C2"
    assert PRESETS[name].trains


CLASSIFIERS = {
    "fedrs": {"logits": {"kind": "restricted"}},
    "fedlc": {"logits": {"kind": "calibrated"}},
    "logit_adjustment": {"logits": {"kind": "adjusted"}},
    "fedlmd": {"logits": {"kind": "lmd"}},
    "fedvls": {"logits": {"kind": "vls"}},
    "fedetf": {"classifier": "etf", "logits": {"kind": "adjusted", "vacant": "one"}},
    "fedgela": {"classifier": "etf", "logits": {"kind": "scaled"}},
}


def test_fedavg_with_a_classifier_for_missing_classes() -> None:
    request = BenchRequest(dataset="fmnist", methods=tuple(CLASSIFIERS), model="small_cnn")
    assert {run.label: run.job.method.options for run in request.runs()} == CLASSIFIERS


def test_a_setting_may_be_for_one_preset_or_for_an_option_of_an_option() -> None:
    settings = {"fedrs.logits.alpha": 0.9, "fedavgm.federation.server.momentum": 0.3, "logits.temperature": 2}
    request = BenchRequest(dataset="fmnist", methods=("fedrs", "fedlmd", "fedavgm"), settings=settings)
    fedrs, fedlmd, fedavgm = (run.job for run in request.runs())
    assert [run.label for run in request.runs()] == [
        "fedrs (logits.alpha 0.9, logits.temperature 2)",
        "fedlmd (logits.temperature 2)",
        "fedavgm (server.momentum 0.3, logits.temperature 2)",
    ]
    assert fedrs.method.options == {"logits": {"kind": "restricted", "alpha": 0.9, "temperature": 2}}
    assert fedlmd.method.options == {"logits": {"kind": "lmd", "temperature": 2}}
    assert fedavgm.federation.server == SERVERS["fedavgm"].model_copy(update={"momentum": 0.3})
    with raises("config.unknown-name", "--set fedlc.logits.tau"):
        BenchRequest(dataset="fmnist", methods=("fedavg",), settings={"fedlc.logits.tau": 1}).runs()


def test_settings_change_a_preset() -> None:
    job = job_for("fmnist", "fedavgm", changes={"federation.server.momentum": 0.9})
    assert job.federation.server == SERVERS["fedavgm"].model_copy(update={"momentum": 0.9})


def test_oneshot_is_one_exchange_on_a_frozen_backbone() -> None:
    job = isic_job("oneshot")
    assert (job.name, job.method.name, job.federation.rounds, job.head.exchange) == (
        "isic_oneshot",
        "fedavg",
        0,
        "last",
    )
    assert (job.model.name, job.model.options) == ("efficientnet_lite0", {"pretrained": "imagenet"})
    assert job.task.image_size == 200
    assert not PRESETS["oneshot"].trains


def test_the_demo_of_oneshot_needs_no_further_package() -> None:
    for job in (isic_job("oneshot").for_demo(), job_for("isic2019", "oneshot", demo=True)):
        assert (job.model.name, job.model.options) == ("small_cnn", {})
        assert (job.federation.rounds, job.head.exchange, job.task.image_size) == (0, "last", 40)


def test_a_network_that_was_asked_for_stays() -> None:
    job = job_for("isic2019", "oneshot", model="efficientnet_b0", changes={"model.options.pretrained": "b0.pth"})
    assert (job.model.name, job.model.options["pretrained"]) == ("efficientnet_b0", "b0.pth")
    assert job_for("isic2019", "oneshot", model="resnet18", demo=True).model.name == "resnet18"


def test_oneshot_scales_small_images_up_for_its_backbone_and_refuses_texts() -> None:
    job = job_for("fmnist", "oneshot")
    assert (job.task.transform, job.task.image_size, job.task.channels) == ("imagenet", 96, 3)
    own = job_for("fmnist", "oneshot", model="small_cnn")
    assert (own.task.transform, own.task.image_size, own.task.channels) == ("plain", 28, 1)
    assert own.model.freeze_backbone and own.federation.rounds == 0
    with raises("config.conflict", "oneshot"):
        job_for("shakespeare", "oneshot")


def test_in_a_comparison_the_rounds_are_for_those_that_train() -> None:
    request = BenchRequest(dataset="isic2019", methods=("fedavg", "oneshot"), rounds=3, absent=("bcn",))
    assert [run.job.federation.rounds for run in request.runs()] == [3, 0]
    assert [run.steps for run in request.runs()] == [3, 1]


def test_a_hospital_that_opts_out_in_a_comparison_shares_no_statistics() -> None:
    request = BenchRequest(dataset="isic2019", methods=("oneshot",), absent=("bcn",), opted_out=("msk",))
    (run,), (open_run,) = request.runs(), request.model_copy(update={"opted_out": ()}).runs()
    shares = {name: site.policy.share_prototypes for name, site in run.sites.items()}
    assert shares == {name: name != "msk" for name in open_run.sites}
    assert run.name != open_run.name
    with raises("config.unknown-name", "--opted-out"):
        request.model_copy(update={"opted_out": ("here",)}).runs()
    with raises("config.conflict", "--opted-out"):
        BenchRequest(dataset="fmnist", methods=("fedavg",), opted_out=("msk",)).runs()


def test_a_preset_leaves_the_network_of_a_job_on_data_of_ones_own() -> None:
    task = {"class_names": ["a", "b"]}
    job = own_job("mine", task, "oneshot", "small_cnn")
    assert (job.model.name, job.model.freeze_backbone, job.federation.rounds) == ("small_cnn", True, 0)
    changed = own_job("mine", task, "fedrs", "small_cnn", changes={"fedrs.logits.alpha": 0.25, "fedlc.logits.tau": 2})
    assert changed.method.options["logits"] == {"kind": "restricted", "alpha": 0.25}
