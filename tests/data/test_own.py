"""A site's own torch datasets: what is taken, how it is checked, and that it is reproducible."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from fedmr_med import data, load_model
from fedmr_med.config import JobConfig, TaskConfig
from fedmr_med.data.loading import Batches
from fedmr_med.data.own import SOURCES, OwnData
from fedmr_med.data.transforms import build
from fedmr_med.jobs.catalog import own_job
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.registry import Registry
from fedmr_med.runner import Federation
from fedmr_med.sites import DatasetSource, SiteConfig, load_site
from tests.helpers.errors import raises

IMAGES = TaskConfig(dataset="own", class_names=("cat", "dog"), image_size=8, channels=3, transform="plain")
ARRAYS = TaskConfig(dataset="own", class_names=("cat", "dog"), image_size=8, channels=1, transform="none")


class Pictures(Dataset):
    """Pictures of three kinds with labels of two."""

    def __init__(self, labels: list[Any], *, kind: str = "array", listed: bool = True):
        self.kind = kind
        self.labels_ = labels
        self.reads = 0
        if listed:
            self.targets = labels

    def __len__(self) -> int:
        return len(self.labels_)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.reads += 1
        picture = np.full((8, 8, 3), 10 * index, dtype=np.uint8)
        made = {"array": picture, "pil": Image.fromarray(picture), "tensor": torch.from_numpy(picture)}
        return made[self.kind], self.labels_[index]


class Noisy(TensorDataset):
    """Augments itself, with all three generators that people use."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = super().__getitem__(index)
        return x + torch.rand(()) + np.random.rand() + random.random(), y


def source(monkeypatch: pytest.MonkeyPatch, own: Any, **options: Any) -> DatasetSource:
    """Register a factory for this test alone and return the source that names it."""
    registry: Registry[Any] = Registry("data source")
    registry.add("ours", lambda task, **given: own(**given) if callable(own) else own)
    monkeypatch.setattr("fedmr_med.data.own.SOURCES", registry)
    return DatasetSource(source="dataset", factory="ours", **options)


def load(monkeypatch: pytest.MonkeyPatch, own: Any, task: TaskConfig = IMAGES, **site: Any) -> data.SiteData:
    options = {key: site.pop(key) for key in ("options", "allow_shared_groups") if key in site}
    return data.load(SiteConfig(data=source(monkeypatch, own, **options), **site), task, seed=0)


@pytest.mark.parametrize("kind", ["array", "pil", "tensor"])
def test_pictures_of_any_kind_go_through_the_tasks_transform(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    loaded = load(monkeypatch, OwnData(Pictures([0, 1, 1], kind=kind), Pictures(["dog"], kind=kind)))
    assert loaded.train.labels.tolist() == [0, 1, 1]
    assert loaded.test.labels.tolist() == [1]
    transform = build("plain", train=False, image_size=8)
    (x, y), *_ = Batches(loaded.train, transform, batch_size=3).epoch("x", shuffle=False)
    assert (x.shape, x.dtype, y.tolist()) == ((3, 3, 8, 8), torch.float32, [0, 1, 1])


def test_arrays_and_texts_reach_the_network_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for x in (torch.randn(4, 5, dtype=torch.float64), torch.randint(0, 80, (4, 20))):
        fold = TensorDataset(x, torch.tensor([0, 1, 0, 1]))
        loaded = load(monkeypatch, OwnData(fold, Subset(fold, [1, 3])), ARRAYS)
        (batch, labels), *_ = Batches(loaded.test, build("none", train=True, image_size=8), batch_size=2).epoch(
            "x", shuffle=False
        )
        assert torch.equal(batch, x[[1, 3]].float() if x.is_floating_point() else x[[1, 3]])
        assert labels.tolist() == [1, 1]


def test_labels_are_read_without_the_items_where_there_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    listed, unlisted = Pictures([0, 1, 1]), Pictures([0, 1, 1], listed=False)
    load(monkeypatch, OwnData(listed, listed))
    load(monkeypatch, OwnData(Subset(listed, [0, 2]), unlisted))
    assert (listed.reads, unlisted.reads) == (3, 4), "the first item of each fold is looked at"


def test_the_datasets_own_class_names_and_the_sites_decide_what_a_number_means(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OwnData(Pictures([0, 1, 1]), Pictures([0]), class_names=("dog", "cat"))
    assert load(monkeypatch, own).train.labels.tolist() == [1, 0, 0]
    numbers = OwnData(Pictures([7, 9]), Pictures([7]))
    assert load(monkeypatch, numbers, classes={"7": "dog", "9": "cat"}).train.labels.tolist() == [1, 0]


def test_what_a_dataset_draws_depends_on_the_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Noisy(torch.zeros(6, 3), torch.tensor([0, 1] * 3))
    plain = TensorDataset(torch.zeros(6, 3), torch.tensor([0, 1] * 3))
    loaded = load(monkeypatch, OwnData(fold, plain, plain=plain), ARRAYS)
    unchanged = build("none", train=True, image_size=8)
    before = torch.get_rng_state()

    def epoch(*stream: int, workers: int = 0) -> torch.Tensor:
        batches = Batches(loaded.train, unchanged, batch_size=4, workers=workers)
        return torch.cat([x for x, _ in batches.epoch(*stream, shuffle=False)])

    assert torch.equal(epoch(0, 1), epoch(0, 1))
    assert not torch.equal(epoch(0, 1), epoch(0, 2))
    assert epoch(0, 1).unique().numel() == 6
    assert torch.equal(before, torch.get_rng_state())
    assert loaded.plain is not None
    assert not loaded.plain[3].any()


def test_what_is_held_out_is_scored_without_augmentation(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.tensor([0, 1] * 10)
    noisy, plain = Noisy(torch.zeros(20, 3), labels), TensorDataset(torch.zeros(20, 3), labels)
    loaded = load(monkeypatch, OwnData(noisy, noisy, plain=plain), ARRAYS, held_out=0.2)
    assert (len(loaded.train), len(loaded.test), loaded.validation) == (16, 4, None)
    assert loaded.plain is not None and len(loaded.plain) == 16
    assert not any(loaded.test[index].any() for index in range(4))
    assert all(loaded.train[index].all() for index in range(16))


@pytest.mark.parametrize(
    ("own", "fault"),
    [
        (OwnData(Pictures([0, 2]), Pictures([0])), ("data.label",)),
        (OwnData(Pictures([0, 1.0]), Pictures([0])), ("data.label",)),
        (OwnData(Pictures([0, -1]), Pictures([0]), class_names=("cat", "dog")), ("data.label",)),
        (OwnData(Pictures(["Dog", "cow"]), Pictures([0])), ("data.label",)),
        (OwnData(Pictures([]), Pictures([0])), ("data.empty",)),
        (
            OwnData(TensorDataset(torch.zeros(2, 3), torch.tensor([0, 1])), Pictures([0])),
            ("data.item", "task.transform"),
        ),
        (
            OwnData(Pictures([0, 1]), Pictures([0]), train_groups=("a", "b"), test_groups=("b",)),
            ("data.shared-groups", "data.allow_shared_groups"),
        ),
        (OwnData(Pictures([0, 1]), Pictures([0]), train_groups=("a",)), ("data.item", "groups")),
        (OwnData(Pictures([0, 1]), Pictures([0]), plain=Pictures([0])), ("data.item", "plain")),
        ("nothing", ("data.factory", "data.factory")),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_place(
    monkeypatch: pytest.MonkeyPatch, own: Any, fault: tuple[str, ...]
) -> None:
    with raises(*fault):
        load(monkeypatch, own)


def test_shared_groups_can_be_accepted_and_options_reach_the_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    both = OwnData(Pictures([0, 1]), Pictures([0]), train_groups=("a", "b"), test_groups=("b",))
    assert len(load(monkeypatch, both, allow_shared_groups=True).test) == 1

    def made(*, count: int) -> OwnData:
        return OwnData(Pictures([0] * count), Pictures([0]))

    assert len(load(monkeypatch, made, options={"count": 5}).train) == 5
    with raises("data.factory", "data.options"):
        load(monkeypatch, made, options={"size": 5})


def from_path(task: TaskConfig, *, part: int) -> OwnData:
    """What ``site.yaml`` names below: two clusters of points."""
    generator = torch.Generator().manual_seed(part)
    labels = torch.arange(40) % 2
    points = torch.randn(40, 6, generator=generator) + 4 * labels[:, None]
    return OwnData(TensorDataset(points, labels), TensorDataset(points[:10], labels[:10]), ("low", "high"))


class Points(torch.nn.Sequential):
    def __init__(self, num_classes: int, width: int = 8):
        super().__init__(torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, num_classes))


def volumes(task: TaskConfig, *, folder: str) -> OwnData:
    """What ``site.yaml`` names below: volumes in files, read by MONAI."""
    from monai.data import Dataset as OfFiles
    from monai.transforms import Compose, EnsureChannelFirstd, LoadImaged, ScaleIntensityd

    class Volumes(OfFiles):
        def __getitem__(self, index: int) -> tuple[Any, int]:
            item = super().__getitem__(index)
            return item["image"], item["label"]

    read = Compose([
        LoadImaged("image", reader="NumpyReader"), EnsureChannelFirstd("image", channel_dim="no_channel"),
        ScaleIntensityd("image"),
    ])  # fmt: skip
    files = [{"image": str(path), "label": int(path.stem[-1])} for path in sorted(Path(folder).glob("*.npy"))]
    return OwnData(Volumes(files[:12], read), Volumes(files[12:], read), ("dark", "bright"))


@pytest.mark.slow
def test_volumes_train_a_network_of_three_dimensions(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    sites = {}
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        for number in range(24):
            volume = generator.random((6, 8, 8))
            volume[2:4, 2:6, 2:6] += 3 * (number % 2)
            np.save(tmp_path / name / f"{number:02}-{number % 2}.npy", volume)
        options = {"folder": str(tmp_path / name)}
        policy = SitePolicy(
            share_prototypes=True, share_metrics="per_class", min_class_count=1, min_cell_count=1, training=None
        )
        data_source = DatasetSource(source="dataset", factory=f"{__name__}.volumes", options=options)
        sites[name] = SiteConfig(data=data_source, policy=policy)
    task = {"class_names": ["dark", "bright"], "transform": "none", "channels": 1}
    dense = {"spatial_dims": 3, "init_features": 4, "growth_rate": 4, "block_config": [1, 1]}
    changes = {"train.optimizer": "adam", "train.lr": 0.001, "train.batch_size": 4, "train.epochs": 1}
    job = own_job(
        "volumes", task, "fedmr", "monai.networks.nets.DenseNet", rounds=2, changes=changes | {"model.options": dense}
    )
    state = Federation(job, sites, tmp_path / "run").run()
    assert state.round == 2 and state.prototypes.available.all()
    assert state.history.head is not None
    model = load_model(tmp_path / "run" / "best_model.pt", allow_code=True)
    assert model.network(torch.zeros(1, 1, 6, 8, 8))[1].shape == (1, 2)
    Image.new("RGB", (32, 32)).save(tmp_path / "picture.png")
    with raises("model.not-for-images"):
        model.predict(tmp_path / "picture.png")


@pytest.mark.slow
def test_a_federation_learns_from_such_sites_with_a_network_of_its_own(tmp_path: Path) -> None:
    sites = {}
    for part in (0, 1):
        path = tmp_path / f"site-{part}" / "site.yaml"
        path.parent.mkdir()
        path.write_text(f"data: {{source: dataset, factory: {__name__}.from_path, options: {{part: {part}}}}}\n")
        policy = SitePolicy(
            share_prototypes=True, share_metrics="per_class", min_class_count=1, min_cell_count=1, training=None
        )
        sites[path.parent.name] = load_site(path).model_copy(update={"policy": policy})
    task = {"class_names": ["low", "high"], "transform": "none", "channels": 1}
    changes = {"train.lr": 0.1, "train.batch_size": 8, "train.epochs": 3}
    job: JobConfig = own_job("points", task, "fedmr", f"{__name__}.Points", rounds=3, changes=changes)
    state = Federation(job, sites, tmp_path / "run").run()
    assert state.history.best.balanced_accuracy > 0.9
    assert state.prototypes.available.all()
    assert SOURCES.kind == "data source"
