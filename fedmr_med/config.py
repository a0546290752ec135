"""The configuration of a job: one YAML file, ``app/config/fedmr.yaml``, read by server and sites alike.

Every section is a frozen pydantic model that refuses unknown keys. What belongs to a hospital (data, policy)
is not here but in :mod:`fedmr_med.sites`.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast, get_args

from pydantic import Field, field_validator, model_validator

from fedmr_med.evaluation import MAX_IMAGES
from fedmr_med.privacy.policy import Sharing
from fedmr_med.schema import FolderName, Name, Sha256, Strict, invalid, read_yaml, settings_hash, validated
from fedmr_med.secure import FEWEST, Secure

if TYPE_CHECKING:  # with it come numpy and torch, which settings do not need
    from fedmr_med.privacy.mechanisms import Gaussian

JOB_FILE = "fedmr.yaml"

NO_MODEL = "none"
"""The name of the network that a survey has: none."""

PAIR = "pair"
"""The name of the network that is two, which sites compare."""

FIRST_DEFAULTS: Mapping[str, Any] = {}
"""The first default, by dotted key, of every key of a job whose default was changed since.

Hashes of a job cover what differs from the first defaults, so that releases agree on jobs of equal meaning. Whoever

- adds a key with a default, adds it to ``tests/job_defaults.json`` and nothing here: no hash changes;
- changes the default of ``train.lr`` from 0.01, adds ``"train.lr": 0.01`` here: jobs that rely on it hash differently;
- changes what a value means, or the default of an option of a method or a network, raises
  :data:`fedmr_med.schema.HASH_VERSION`. Options are hashed as they are written: their defaults are not known here.
"""

_NOT_COMPARED: dict[str, Any] = {
    "name": True,
    "chain": True,
    "federation": {"rounds", "stop", "resume_from", "without"},
}
"""What runs that can be compared may differ in: their names, where and when a chain ends, and who left it."""

Metric = Literal["balanced_accuracy", "accuracy"]
_CONDITION = re.compile(r"\s*(balanced_accuracy|accuracy)\s*(>=|>)\s*(0|1|0?\.\d+|[01]\.\d*)\s*")


class PreparationConfig(Strict):
    """What is done to a photograph before it is decoded, as ``fedmr-med data prepare-isic`` does it.

    It is scaled to the edge, freed of the colour of its light (shades of grey, Minkowski norm of power 6), and goes
    through a JPEG file of Pillow's usual quality.

    Attributes:
        version: of this recipe.
        edge: shorter edge in pixels.
    """

    version: Literal[1]
    edge: int = Field(ge=4, le=10_000)


class TaskConfig(Strict):
    """What is learned.

    Attributes:
        dataset: name of the dataset; benchmark datasets are read from their archives, ``isic2019`` from each
            hospital's own data.
        class_names: the classes, in the order of the labels.
        image_size: edge of the square the network sees, in pixels.
        channels: 3 for colour, 1 for grey.
        transform: name of a pair of train and test transforms in :mod:`fedmr_med.data.transforms`.
        split: how a benchmark dataset is partitioned (``P5C2``, ``dir0.5``, ``iid``); None where
            the hospitals hold their own data.
        preparation: what pictures go through first, at sites and wherever the model is used, unless they are prepared
            already (``data.prepared`` of ``site.yaml``, ``--prepared``). None takes them as they are. Datasets of a
            site's own code are taken as prepared.
        subgroups: columns of the hospitals' tables, such as sex, age or device, with the levels of each: images are
            counted and scored by level too, as far as each hospital's policy allows. A level is a text of the column,
            or for numbers a band such as ``40-59`` or ``60+``.
    """

    dataset: Name
    class_names: tuple[Name, ...] = Field(min_length=2, max_length=1000)
    image_size: int = Field(gt=0, le=4096)
    channels: int = Field(3, ge=1, le=64)
    transform: Name
    split: Name | None = None
    preparation: PreparationConfig | None = None
    subgroups: dict[Name, Annotated[tuple[Name, ...], Field(min_length=1, max_length=20)]] = Field({}, max_length=8)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())  # a mapping has no hash of its own

    @property
    def levels(self) -> tuple[tuple[str, str], ...]:
        """Column and level of each subgroup, in order."""
        return tuple((column, level) for column, levels in self.subgroups.items() for level in levels)

    @model_validator(mode="after")
    def _one_name_per_class(self) -> Self:
        # A site's policy goes by names: two classes of one name would both leave where one may.
        if len(set(self.class_names)) < len(self.class_names):
            raise invalid("class_names has a name twice", code="config.duplicate", key="class_names")
        return self

    @property
    def num_classes(self) -> int:
        """Number of classes of the task."""
        return len(self.class_names)


class ModelConfig(Strict):
    """A network by name, with the options its builder in :mod:`fedmr_med.models` takes.

    Attributes:
        name: of a registered network, or the dotted path of its class.
        options: of the network; ``fedmr-med jobs show`` lists them.
        views: what the feature of an image is in evaluation mode: ``plain``: of the image as it is; ``flips``: the mean
            over the image and its three mirror images, for pictures without a right way up.
        freeze_backbone: train the classifier alone. Every site makes the features of its images once, in evaluation
            mode and without augmentation, and keeps them on disk; only the classifier travels after the first round.
        weights: SHA-256 of the weights that the job brings; they are part of what a hospital approves. None starts from
            those that its seed draws, or that ``options.pretrained`` names.
    """

    name: Name
    options: dict[str, Any] = {}
    views: Literal["plain", "flips"] = "plain"
    freeze_backbone: bool = False
    weights: Sha256 | None = None


class MethodConfig(Strict):
    """A federated method by name, with the options its file in :mod:`fedmr_med.methods` declares.

    Attributes:
        name: of a registered method.
        options: of the method; ``fedmr-med jobs show`` lists them.
    """

    name: Name
    options: dict[str, Any] = {}


class LossConfig(Strict):
    """The classification loss.

    Attributes:
        name: one of :data:`fedmr_med.site.criterion.LOSSES`: ``cross_entropy``, or FLamby's for ISIC2019, ``focal``.
        gamma: focusing parameter of the focal loss.
        class_weights: ``none``; ``local``: N / n_c from the site's own counts; ``flamby``: FLamby's constants
            for ISIC2019, made from the class counts of all centres.
    """

    name: Name = "cross_entropy"
    gamma: float = Field(2.0, ge=0, le=100)
    class_weights: Literal["none", "local", "flamby"] = "none"


class PrivateTrainConfig(Strict):
    """Differentially private local training (DP-SGD, Abadi et al. 2016), see docs/privacy.md.

    Every step draws each image with probability batch size over number of images, clips the gradient of each, and adds
    noise to their sum. What is drawn and the noise come from the operating system, not from the job's seed: such a run
    cannot be repeated bit for bit. Prototypes, scores and numbers of images are not part of the guarantee.

    Attributes:
        clip: largest length of one image's gradient; a patient's, where the table names patients.
        noise: standard deviation of the noise on the sum of a step's gradients, relative to ``clip``.
    """

    clip: float = Field(gt=0, le=1e6)
    noise: float = Field(gt=0, le=1e6)


class TrainConfig(Strict):
    """Local training of one round.

    Attributes:
        optimizer: one of :data:`fedmr_med.site.optim.OPTIMIZERS`: ``sgd`` or ``adam``.
        lr: learning rate.
        momentum: of ``sgd``.
        weight_decay: share of a parameter that each step adds to its gradient.
        batch_size: images of a step.
        epochs, updates: passes over the local data, or optimiser steps; exactly one of them is given.
        augment: whether training images go through the random transform; ``fast`` is that of ISIC2019 in a third of
            the time, with the same distribution.
        workers: processes that load images; 0 loads in the training process.
        norm_statistics: what BatchNorm normalises by in training: the ``batch``; or ``frozen``, the statistics that the
            network came with, in training as in evaluation. Pretrained networks want that, with a smaller ``lr``.
        precision: of the network's forward pass; ``auto`` is bfloat16 on a GPU that has it, else float32.
        compile: whether the network goes through ``torch.compile``: half a minute and more for the first step of a
            process, faster steps afterwards. Worth it for long rounds on a GPU; it needs a C++ compiler at the site.
        private: clipped and noisy gradients; None takes them as they are.
        validation: share of each site's training images, of whole patients, that is not trained on and chooses: the
            round, classifier or closed-form head, thresholds and the temperature. Test images are then scored once. 0
            chooses on the test images, so that their figures are optimistic. Sites with training floors take 0 and 0.2.
    """

    optimizer: Name = "sgd"
    lr: float = Field(0.01, ge=0, le=100)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-5, ge=0, le=100)
    batch_size: int = Field(128, ge=2, le=100_000)
    epochs: int | None = Field(None, ge=1, le=10_000)
    updates: int | None = Field(None, ge=1, le=10_000_000)
    augment: bool | Literal["fast"] = True
    workers: int = Field(0, ge=0, le=64)
    norm_statistics: Literal["batch", "frozen"] = "batch"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    private: PrivateTrainConfig | None = None
    validation: float = Field(0.0, ge=0, le=0.5)

    @model_validator(mode="after")
    def _settings_fit(self) -> Self:
        if (self.epochs is None) == (self.updates is None):
            raise invalid("give exactly one of train.epochs and train.updates", code="config.conflict", key="epochs")
        if self.private is not None and self.compile:
            message = "train.compile: a compiled network has no gradients of single images; drop train.private"
            raise invalid(message, code="config.conflict", key="compile")
        return self

    @property
    def noise(self) -> float:
        """Noise on a step's gradients relative to their clip; 0 without ``private``."""
        return 0.0 if self.private is None else self.private.noise


class ServerConfig(Strict):
    """What the server makes of a round's result: the method's new parameters are taken as the end of a step.

    With delta = the method's parameters - those the round started from:

    - ``average``: the method's parameters as they are;
    - ``sgd``: v = momentum * v + delta; w += lr * v (FedAvgM, Hsu et al. 2019);
    - ``adam``, ``yogi``, ``adagrad``: FedAdam, FedYogi and FedAdagrad (Reddi et al., ICLR 2021), without bias
      correction, the second moment starting from eps^2.

    Attributes:
        optimizer: the step, as above.
        lr: server learning rate.
        momentum: of ``sgd``.
        betas: decay of the first and second moment of ``adam`` and ``yogi``; ``adagrad`` uses the first, which is 0
            in the preset ``fedadagrad``, as in the paper.
        eps: degree of adaptivity, tau in the paper.
    """

    optimizer: Literal["average", "sgd", "adam", "yogi", "adagrad"] = "average"
    lr: float = Field(1.0, gt=0, le=100)
    momentum: float = Field(0.0, ge=0, lt=1)
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = Field(1e-3, gt=0)

    @model_validator(mode="after")
    def _betas_are_decays(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise invalid("federation.server.betas must be at least 0 and below 1", code="config.value", key="betas")
        return self


class StopConfig(Strict):
    """When a chain ends before its last round, see :mod:`fedmr_med.server.stopping`.

    Attributes:
        condition: ends it when the model of a round fulfils it: a metric, ``>=`` or ``>``, and a value, such as
            ``balanced_accuracy >= 0.8``. None sets no goal.
        patience: ends it when so many rounds in a row brought no better model; None waits for ever.
        metric: what ``patience`` looks at.
    """

    condition: str | None = Field(None, max_length=100)
    patience: int | None = Field(None, ge=1, le=100_000)
    metric: Metric = "balanced_accuracy"

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if self.condition is None and self.patience is None:
            message = "give federation.stop.condition or federation.stop.patience, or both"
            raise invalid(message, code="config.missing", key="condition")
        if self.condition is not None and not _CONDITION.fullmatch(self.condition):
            message = f"federation.stop.condition is {' or '.join(get_args(Metric))}, >= or >, and a value from 0 to 1"
            raise invalid(message, code="config.value", key="condition")
        return self

    @property
    def goal(self) -> tuple[Metric, str, float] | None:
        """The condition in its three parts."""
        found = _CONDITION.fullmatch(self.condition or "")
        return None if found is None else (cast(Metric, found[1]), found[2], float(found[3]))


class PrivateConfig(Strict):
    """Differentially private prototypes, see docs/privacy.md. Model update and scores are not part of the guarantee.

    Attributes:
        clip: largest length of a feature vector in the class sums.
        noise: standard deviation of the noise relative to what one image can change: on the total with
            ``federation.secure``, else on what each site sends.
        every: prototypes are released in every so many rounds, the first among them, and age in between.
    """

    clip: float = Field(gt=0, le=1e6)
    noise: float = Field(gt=0, le=1e6)
    every: int = Field(1, ge=1, le=100_000)

    @property
    def gaussian(self) -> "Gaussian":
        """The noise on class sums and counts."""
        from fedmr_med.privacy.mechanisms import Gaussian

        return Gaussian(self.noise, self.clip)

    @property
    def head_gaussian(self) -> "Gaussian":
        """The noise on the statistics of a closed-form head."""
        from fedmr_med.privacy.mechanisms import Gaussian

        return Gaussian(self.noise, self.clip, with_moments=True)


class ExtendsConfig(Strict):
    """Another chain whose head gets one class more, see docs/leaving-and-joining.md.

    Attributes:
        chain: id of that chain, at the same server: one exchange, no training, and ``head.keep``. Its classes are this
            job's but for the last one.
        site: who has images of the last class. It alone is asked for statistics; those of the others are the kept ones.
    """

    chain: FolderName
    site: Name


class HeadConfig(Strict):
    """The closed-form head: a classifier solved from the sites' class statistics, see :mod:`fedmr_med.statistics.head`.

    It scores and leaves with the model, and is never trained further.

    Attributes:
        exchange: ``none``; ``last``: one exchange after the last round; k: after every k-th round and the last. None
            takes the method's own: ``last`` for FedMR (anchored or replayed), whose sites share class sums anyway.
        prior: ``uniform`` for balanced accuracy, ``counts`` for accuracy on data like the training data.
        shrinkage: of the covariance; None chooses it on training images that the sites set aside.
        held_out: share of the training images of a class to set aside for that. Sites with training floors take 0.15.
        projection: send the statistics of so many random directions of the features, drawn by the job's seed, in place
            of all of them: the scatter matrix shrinks by the square, and little is lost. None sends all.
        keep: whether the server keeps the statistics that the head is made of: each site's, or with
            ``federation.secure`` their total, and each site its own part. So a site can leave the head, and a class
            join it, without asking the others again.
        extends: makes the head from what another chain keeps and one site's statistics; None asks all sites.
    """

    exchange: Literal["none", "last"] | Annotated[int, Field(ge=1)] | None = None
    prior: Literal["uniform", "counts"] = "uniform"
    shrinkage: float | None = Field(None, ge=0, le=1)
    held_out: float = Field(0.15, gt=0, le=0.5)
    projection: int | None = Field(None, ge=2, le=100_000)
    keep: bool = False
    extends: ExtendsConfig | None = None


class FederationConfig(Strict):
    """How the sites take part.

    Attributes:
        rounds: rounds of the whole chain (a run and its resumptions). With 0 nothing is trained: the sites make one
            exchange for the closed-form head of the initial model; with ``head.exchange: none`` they score that model.
        min_sites: replies that make a round count (the quorum).
        sites_per_round: how many sites are drawn each round; None asks all of them.
        timeout_seconds: how long a round may take; 0 waits forever.
        grace_seconds: how long to wait for the others once the quorum is there.
        buffers: what becomes of BatchNorm statistics: ``average`` like weights; ``first``: those of the
            first site, as FLamby scores its models; ``local``: BatchNorm layers, weights included, stay at each site
            (FedBN, Li et al., ICLR 2021). Sites then score models with layers of their own, and the model that leaves
            has those of the start.
        max_norm: a reply with an array of a larger norm is refused.
        max_samples: a reply that reports more training or test images is refused. They are a site's weight, so set
            it to what the largest site can have.
        max_deviation: a reply that is so many times as far from the others as the median one is left out of its
            round, see :mod:`fedmr_med.server.robust`; None leaves nobody out.
        robust: what is done to all replies of a round besides.
        trim: the share of the replies that ``trimmed_mean`` cuts off at either end.
        quarantine_after: a site whose replies were refused in so many rounds in a row does not count any more in this
            chain; None only names it.
        wire: type of the model's parameters between server and sites; ``float16`` halves the bytes. Everything else
            (buffers, prototypes, what a method adds) stays as it is.
        server: the server's optimiser; None takes the method's own, which is the average for all but FedMR (anchored or
            replayed).
        secure: what the server sees as a total over the sites only, see docs/security.md: ``none``; ``statistics``:
            prototypes, confusion matrices and the statistics of a closed-form head; ``all``: the trained models and the
            numbers of images too. Nobody can compare single replies then, so ``max_deviation`` has no effect.
        secure_digits: binary digits after the point of class sums and second moments in a secure sum, which multiplies
            them by 2 to this power and rounds. 24 resolves 6e-8 and holds up to 2.6e8 a site; features much smaller
            than 0.01 need more.
        clip_update: with ``secure: all``, the largest length of a site's change of the parameters; every site scales a
            longer one down before it is summed.
        private: noise on the prototypes; None adds none.
        statistics: further statistics that sites share, by the names that other packages registered for them.
        stop: when the chain ends before its last round; None runs all rounds.
        resume_from: the checkpoint a follow-up starts from: the ``last``, or the ``previous`` one if that is damaged.
        without: sites that leave the chain: they are asked no more, and what they gave is taken out of the closed-form
            head. Who has left stays out, also where a later job of the chain does not say so.
    """

    rounds: int = Field(ge=0, le=100_000)
    min_sites: int = Field(1, ge=1, le=100_000)
    sites_per_round: int | None = Field(None, ge=1, le=100_000)
    timeout_seconds: int = Field(0, ge=0, le=31_536_000)
    grace_seconds: int = Field(10, ge=0, le=31_536_000)
    buffers: Literal["average", "first", "local"] = "average"
    max_norm: float = Field(1e9, gt=0, le=1e12)
    max_samples: int = Field(1_000_000, ge=1, le=MAX_IMAGES)
    max_deviation: float | None = Field(3.0, gt=1, le=1e6)
    robust: Literal["none", "clip", "median", "trimmed_mean"] = "none"
    trim: float = Field(0.2, gt=0, lt=0.5)
    quarantine_after: int | None = Field(None, ge=1, le=100_000)
    wire: Literal["float32", "float16"] = "float32"
    server: ServerConfig | None = None
    secure: Secure = "none"
    secure_digits: int = Field(24, ge=8, le=44)
    clip_update: float = Field(100.0, gt=0, le=1e6)
    private: PrivateConfig | None = None
    statistics: tuple[Annotated[FolderName, Field(max_length=40)], ...] = Field((), max_length=8)
    stop: StopConfig | None = None
    resume_from: Literal["last", "previous"] = "last"
    without: tuple[Name, ...] = Field((), max_length=1000)

    @model_validator(mode="after")
    def _sums_have_sites(self) -> Self:
        if self.secure != "none" and self.sites_per_round is not None:
            message = "federation.secure takes the same sites in every round: leave sites_per_round out"
            raise invalid(message, code="config.conflict", key="sites_per_round")
        if self.secure != "none" and self.min_sites < FEWEST:
            message = f"federation.secure needs federation.min_sites of {FEWEST} or more"
            raise invalid(message, code="config.conflict", key="min_sites")
        if self.sums_models and (self.robust != "none" or self.buffers == "first"):
            message = "federation.secure: all knows no single reply: take robust: none, and buffers: average or local"
            raise invalid(message, code="config.conflict", key="secure")
        return self

    @property
    def sums_statistics(self) -> bool:
        """Whether statistics leave the sites in secure sums only."""
        return self.secure != "none"

    @property
    def sums_models(self) -> bool:
        """Whether trained models leave the sites in secure sums only."""
        return self.secure == "all"

    def halved(self, parameters: frozenset[str]) -> frozenset[str]:
        """Return which of the model's parameters are sent as float16."""
        return parameters if self.wire == "float16" else frozenset()


class JobConfig(Strict):
    """A whole job.

    Attributes:
        name: of the job, for people.
        policy: the most the job asks a site to share. It can make a hospital's own policy stricter, never
            looser.
        seed: of every random number of the run.
        chain: id that a run and its resumptions have in common; None uses the id FLARE gives the job.
        demo: overrides of any section, applied where the built-in demo stands in for data.
        survey: ask the sites what they hold, and for nothing else: one exchange without a model.
    """

    name: Name
    task: TaskConfig
    model: ModelConfig
    method: MethodConfig
    loss: LossConfig = LossConfig()
    train: TrainConfig
    federation: FederationConfig
    head: HeadConfig = HeadConfig()
    seed: int = Field(0, ge=0, lt=2**63)
    policy: Sharing = Sharing(share_prototypes=True, min_class_count=1, share_metrics="per_class")
    chain: FolderName | None = None
    demo: dict[str, Any] = {}
    survey: bool = False

    @field_validator("policy", mode="before")
    @classmethod
    def _scatter_is_the_hospitals(cls, content: Any) -> Any:
        """Read jobs of earlier versions that say what always holds now: a job does not turn scatter off.

        It seems to ask for less, and leaves class means in the head as they are, where whoever wrote the job has them.
        """
        if not isinstance(content, Mapping) or "share_scatter" not in content:
            return content
        if content["share_scatter"] is not True:
            raise invalid(
                "is for the hospital to say, in its site.yaml", code="config.unknown-key", key="share_scatter"
            )
        return {name: value for name, value in content.items() if name != "share_scatter"}

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        # A hospital's steward reads them in a terminal, where escape codes would redraw the other lines.
        if any(not text.isprintable() for text in _texts(self.model_dump(mode="json"))):
            raise invalid("a text has a control character, such as a line break or an escape code", code="config.text")
        if self.survey != (self.model.name == NO_MODEL) or (self.survey and self.federation.rounds):
            message = f"survey: true asks for model.name: {NO_MODEL} and federation.rounds: 0, and they for it"
            raise invalid(message, code="config.conflict", key="survey")
        if self.survey and (self.policy != type(self).model_fields["policy"].default or self.train.validation):
            # A survey of all classes and one of some would tell, by their difference, small numbers of the others.
            message = "a survey asks of all classes and training images alike: leave policy and train.validation out"
            raise invalid(message, code="config.conflict", key="survey")
        if self.federation.rounds == 0 and self.head.exchange is None and not self.survey:
            message = (
                "federation.rounds: 0 rounds train nothing: say head.exchange: last for a closed-form head, or none to "
                "score the initial model alone"
            )
            raise invalid(message, code="config.conflict", key="federation.rounds")
        if self.train.private is not None and self.loss.class_weights == "local":
            message = (
                "loss.class_weights: local weighs by the site's own class counts, which train.private does not protect"
            )
            raise invalid(message, code="config.conflict", key="loss.class_weights")
        self._extends_one_exchange()
        if self.demo:
            self.for_demo()
        return self

    def _extends_one_exchange(self) -> None:
        """Refuse to extend what is not the sum of statistics that the server can see one by one."""
        federation = self.federation
        if self.head.extends is None:
            return
        if federation.rounds or self.head.exchange != "last":
            message = "head.extends: only one exchange without training can be extended: federation.rounds: 0"
            raise invalid(message, code="config.conflict", key="head.extends")
        if federation.secure != "none" or federation.private is not None or federation.statistics:
            message = (
                "head.extends: with federation.secure, private or statistics a class cannot join: the totals of before "
                "and after would tell what the one site put in, or the noise would not fit"
            )
            raise invalid(message, code="config.conflict", key="head.extends")

    def for_demo(self) -> Self:
        """Return this job with its ``demo`` overrides applied."""
        return self.override(self.demo).model_copy(update={"demo": {}})

    def override(self, changes: dict[str, Any]) -> Self:
        """Return a copy in which ``changes``, nested like the YAML file, replace values.

        Raises:
            ConfigError: a key does not exist or a value is not valid.
        """
        merged = merge(self.model_dump(mode="json", exclude={"demo"}), changes)
        return validated(type(self), merged | {"demo": {}}, "the overrides")

    def digest(self) -> str:
        """Return a short hash of what makes two runs comparable, as server and sites compare it."""
        return self.whole_digest()[:16]

    def whole_digest(self) -> str:
        """Return all of that hash, of which nobody finds two jobs with the same."""
        return self.hash_of(self.compared())

    def compared(self) -> dict[str, Any]:
        """Return what makes two runs comparable, defaults included: not the name, nor where the chain ends."""
        return self.model_dump(mode="json", exclude=_NOT_COMPARED)

    def hash_of(self, content: Mapping[str, Any]) -> str:
        """Return the SHA-256, in hex, of what a part of the job sets, defaults included; see :data:`FIRST_DEFAULTS`."""
        return settings_hash(self, content, FIRST_DEFAULTS)


def _texts(content: Any) -> Iterator[str]:
    """Yield all texts of nested settings, the keys included."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(content, (list, tuple)):
        for value in content:
            yield from _texts(value)


def load_job(path: Path) -> JobConfig:
    """Read a job's ``fedmr.yaml``.

    Raises:
        ConfigError: the file is missing or not valid; the message names the file and the key.
    """
    return validated(JobConfig, read_yaml(path), str(path))


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings. Another ``name`` of a model or method starts without the old one's options and weights."""
    merged = dict(base)
    if "options" in base and changes.get("name", base.get("name")) != base.get("name"):
        merged["options"] = {}
        merged.pop("weights", None)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged
