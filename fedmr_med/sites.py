"""The settings of a hospital (``site.yaml``: data and policy) and the rule for where they come from.

The hospital is the authority. Its settings are, in this order:

1. ``site.yaml`` in the ``local/`` folder of the site's own FLARE workspace;
2. ``<site>/site.yaml`` in the folder named by ``FEDMR_MED_SITES``;
3. in the simulator only, ``sites/<site>/site.yaml`` as carried by the job. Here alone, the built-in demo stands
   in for Fed-ISIC2019 if no folder with images is named, neither in the file nor by ``FEDMR_MED_ISIC``.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedmr_med.errors import ConfigError
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import Name, Strict, invalid, read_yaml, validated

SITE_FILE = "site.yaml"
SITES_VARIABLE = "FEDMR_MED_SITES"
ISIC_VARIABLE = "FEDMR_MED_ISIC"


class DemoSource(Strict):
    """Generated pictures that follow the class pattern of one Fed-ISIC2019 centre.

    Attributes:
        center: centre 0 to 5.
        classes: the only classes that the site holds, each with ``images`` pictures; None holds what the centre holds.
        images: training pictures of each of ``classes``; a third as many are for testing.
    """

    source: Literal["demo"]
    center: int = Field(ge=0, le=5)
    classes: tuple[Name, ...] | None = Field(None, exclude_if=lambda classes: classes is None)
    images: int = Field(60, ge=3, le=10_000, exclude_if=lambda images: images == 60)


class FlambyIsicSource(Strict):
    """One centre of a folder that was prepared as FLamby prepares Fed-ISIC2019.

    Attributes:
        center: centre 0 to 5.
        root: folder that holds ``ISIC_2019_Training_Input_preprocessed``; None reads ``FEDMR_MED_ISIC``.
        split_file: FLamby's ``train_test_split``; None looks in ``root`` and then in ``flamby``.
        flamby: a FLamby checkout.
        without_leaked: leave out test images of a lesion that is in a train fold too; it needs HAM10000's metadata in
            ``root``.
        test_part: score this part of ``parts``, counted from 0, and train on the others, in place of FLamby's folds. A
            lesion is in one part only; it needs HAM10000's metadata in ``root``.
        parts: how many parts there are for that.
    """

    source: Literal["flamby_isic"]
    center: int = Field(ge=0, le=5)
    root: Path | None = None
    split_file: Path | None = None
    flamby: Path | None = None
    without_leaked: bool = False
    test_part: int | None = Field(None, ge=0, lt=20)
    parts: int = Field(5, ge=2, le=20)


class ManifestSource(Strict):
    """A hospital's own folder: a CSV (image, label, fold, optional group) and images.

    Attributes:
        root: folder that image paths in the CSV are relative to.
        manifest: the CSV, relative to ``root``.
        allow_shared_groups: accept a patient or lesion that has images in both folds.
        prepared: whether the images went through the preparation of the jobs already, such as those of ``fedmr-med
            data prepare-isic``: ``task.preparation`` is then not done again.
    """

    source: Literal["manifest"]
    root: Path
    manifest: Path = Path("manifest.csv")
    allow_shared_groups: bool = False
    prepared: bool = False


class BenchmarkSource(Strict):
    """One client's part of a benchmark dataset, partitioned as the job's ``task.split`` says.

    Attributes:
        client: number of this client in the partition, from 0.
        clients: how many clients the dataset is partitioned among.
        root: folder or file of the dataset; None reads ``FEDMR_MED_DATA``.
        fraction: fraction of the training images that is used, the same for every class.
        holds_test: whether the client holds its share of the test images; False where the server scores models.
    """

    source: Literal["benchmark"]
    client: int = Field(ge=0)
    clients: int = Field(ge=1)
    root: Path | None = None
    fraction: float = Field(1.0, gt=0, le=1)
    holds_test: bool = True


class FlambySource(Strict):
    """One centre of a classification dataset of FLamby's, read by FLamby's own class.

    Attributes:
        dataset: ``fed_isic2019``, ``fed_heart_disease``, ``fed_camelyon16``.
        center: number of the centre.
        root: folder of the data; None takes what FLamby's own configuration says.
        flamby: a FLamby checkout; None takes ``FEDMR_MED_FLAMBY``, or the installed package.
    """

    source: Literal["flamby"]
    dataset: str = Field(min_length=1, max_length=100)
    center: int = Field(ge=0)
    root: Path | None = None
    flamby: Path | None = None


class DatasetSource(Strict):
    """Torch datasets that a factory of the site's own makes, see :mod:`fedmr_med.data.own`.

    Attributes:
        factory: name of a registered factory, or its dotted path.
        options: what it is called with.
        allow_shared_groups: accept a patient or lesion that has items in both folds.
    """

    source: Literal["dataset"]
    factory: str = Field(min_length=1, max_length=200)
    options: dict[str, Any] = {}
    allow_shared_groups: bool = False


class ScriptSource(Strict):
    """Data that a training script of the site's own reads, see :mod:`fedmr_med.client`."""

    source: Literal["script"]


DataSource = Annotated[
    DemoSource | FlambyIsicSource | FlambySource | ManifestSource | BenchmarkSource | DatasetSource | ScriptSource,
    Field(discriminator="source"),
]


class SiteConfig(Strict):
    """Everything a hospital decides for itself.

    Attributes:
        data: where its images are.
        classes: what its labels mean. A list names the classes of labels 0, 1, ...; a mapping the class of each label
            in its table. None takes labels that are class names as they are, and numbers as the job counts them.
        policy: what it shares.
        max_bad_fraction: share of its images that may be unreadable before the site refuses to train.
        cache: folder for decoded images and their features; None uses the user's cache folder.
        held_out: share of its training data that is not trained on but scored on, in place of its test data: for
            choosing settings before the test data is looked at.
    """

    data: DataSource
    classes: tuple[Name, ...] | dict[str, Name] | None = None
    policy: SitePolicy = SitePolicy()
    max_bad_fraction: float = Field(0.01, ge=0, le=1)
    cache: Path | None = None
    held_out: float = Field(0.0, ge=0, le=0.5, exclude_if=lambda share: share == 0)

    @field_validator("classes", mode="before")
    @classmethod
    def _labels_are_text(cls, content: Any) -> Any:
        return {str(label): name for label, name in content.items()} if isinstance(content, dict) else content

    @model_validator(mode="after")
    def _policy_names_own_classes(self) -> Self:
        if self.classes is not None:
            own = self.classes.values() if isinstance(self.classes, dict) else self.classes
            if isinstance(self.classes, tuple) and len(set(own)) < len(self.classes):
                raise invalid("classes has a name twice", code="config.duplicate", key="classes")
            shared = self.policy.share_prototypes
            unknown = set(shared if isinstance(shared, tuple) else ()) - set(own)
            if unknown:
                message = f"policy.share_prototypes names {min(unknown)!r}, which classes does not have"
                raise invalid(message, code="config.unknown-name", key="policy.share_prototypes")
        return self


def load_site(path: Path) -> SiteConfig:
    """Read a ``site.yaml``; relative paths in it are relative to its folder.

    Raises:
        ConfigError: the file is missing or not valid; the message names the file and the key.
    """
    config = validated(SiteConfig, read_yaml(path), str(path))
    folder = path.parent.resolve()
    cache = folder / config.cache.expanduser() if config.cache else None
    return config.model_copy(update={"data": _absolute(config.data, folder), "cache": cache})


def find_site(site: str, *, local: Path | None, job_sites: Path | None) -> tuple[SiteConfig, Path]:
    """Return the settings of ``site`` and the file they come from.

    Args:
        local: the ``local/`` folder of the site's FLARE workspace, if it has one of its own.
        job_sites: ``sites/`` folder carried by the job; to be given in the simulator only.

    Raises:
        ConfigError: there are no settings, or they are not valid.
    """
    candidates = [local / SITE_FILE] if local else []
    folder = os.environ.get(SITES_VARIABLE)
    if folder:
        candidates.append(Path(folder) / site / SITE_FILE)
    elif job_sites:
        candidates.append(job_sites / site / SITE_FILE)
    for path in candidates:
        if path.exists():
            config = load_site(path)
            return (_or_demo(config) if job_sites in path.parents else config), path
    looked = ", ".join(str(path) for path in candidates) or "nowhere"
    raise ConfigError(
        f"No {SITE_FILE} for site {site!r} (looked in: {looked}). Set {SITES_VARIABLE} or write one.",
        code="file.missing",
        key=SITES_VARIABLE,
    )


def _or_demo(config: SiteConfig) -> SiteConfig:
    """Let the demo stand in for Fed-ISIC2019 where nobody named a folder. Only for settings a simulated job carries."""
    data = config.data
    if data.source == "flamby_isic" and data.root is None and not os.environ.get(ISIC_VARIABLE):
        return config.model_copy(update={"data": DemoSource(source="demo", center=data.center)})
    return config


def _absolute(source: DataSource, folder: Path) -> DataSource:
    """Resolve the relative paths of a source against the folder of its site file, and expand ``~``."""
    fields = {name: getattr(source, name) for name in ("root", "split_file", "flamby") if hasattr(source, name)}
    paths = {name: folder / value.expanduser() for name, value in fields.items() if value is not None}
    return source.model_copy(update=paths)
