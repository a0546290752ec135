"""What ``fedmr-med bench`` is asked for, and the runs that come of it."""

from pydantic import Field, JsonValue

from fedmr_med import methods
from fedmr_med.config import JobConfig
from fedmr_med.data.datasets import DATASETS
from fedmr_med.data.demo import DEMO
from fedmr_med.errors import ConfigError
from fedmr_med.jobs.benchmark import clients_of
from fedmr_med.jobs.catalog import job_for
from fedmr_med.jobs.changes import method_options
from fedmr_med.jobs.presets import PRESETS, own_changes, resolve
from fedmr_med.lab.bench.runs import Run, Selection
from fedmr_med.registry import check_known

SERVER = "federation.server."
TOLD = {"variant", "evaluate"}
"""Options that a method's own variant tells."""


class BenchRequest(Selection):
    """A comparison of methods on one dataset and split.

    Attributes:
        split: how the dataset is partitioned; None takes the paper's most class-disjoint split.
        methods, seeds: every method is run with every seed.
        model, rounds, epochs, clients: instead of the paper's; ``clients`` where the split does not say.
        clients_per_round: clients drawn each round; None takes the paper's: all, or 10 of 50 and more.
        settings: other settings by key, see :func:`fedmr_med.jobs.changes.change`.
        chosen: settings of single methods on top of them, see :mod:`fedmr_med.lab.bench.search`.
        tune, tune_rounds: seed of the search for the latter, and its rounds; None makes none, and takes the
            comparison's.
    """

    dataset: str
    split: str | None = None
    methods: tuple[str, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    model: str | None = None
    rounds: int | None = Field(None, ge=1)
    epochs: int | None = Field(None, ge=1)
    clients: int | None = Field(None, ge=1)
    clients_per_round: int | None = Field(None, ge=1)
    settings: dict[str, JsonValue] = {}
    chosen: dict[str, dict[str, JsonValue]] = {}
    tune: int | None = None
    tune_rounds: int | None = Field(None, ge=1)

    @property
    def title(self) -> str:
        """One line that says what is compared."""
        scored_on = "held-out training data: " if self.held_out else ""
        return f"{scored_on}{self.dataset} {self.split or ''}: {', '.join(self.methods)}".replace(" :", ":")

    def settings_of_all(self) -> dict[str, JsonValue]:
        """Return as JSON values what all runs of one folder have in common."""
        return self.model_dump(mode="json", exclude={"methods", "seeds", "tune", "tune_rounds"})

    def runs(self) -> list[Run]:
        """Return one run per method and seed, methods in the order given.

        Raises:
            ConfigError: a name or a setting is not known or not valid.
        """
        for name in self.methods:
            method_options(resolve(name)[0])
        self._check_settings()
        clients = self._clients()
        if self.clients_per_round and self.clients_per_round > clients:
            why = f"{self.clients_per_round} of {clients} clients cannot be drawn"
            raise _refused("--clients-per-round", why, code="config.value")
        return [self._run(method, seed, clients) for method in self.methods for seed in self.seeds]

    def _clients(self) -> int:
        dataset = DATASETS.get(self.dataset, "--dataset")
        for option, given in (("--without-leaked", self.without_leaked), ("--cross-validate", self.cross_validate)):
            if given and (dataset.name != "isic2019" or self.data == DEMO):
                raise _refused(option, "only the images of isic2019 have known lesions")
        if self.data == DEMO and not dataset.has_demo:
            raise _refused("--data", f"{dataset.name} has no demo; isic2019 has")
        if not dataset.sites:
            if self.absent or self.opted_out:
                option = "--absent" if self.absent else "--opted-out"
                raise _refused(option, f"{dataset.name} has no hospitals of its own; isic2019 has")
            return clients_of(dataset.name, self.split or dataset.protocol.split, self.clients)
        for option, names in (("--absent", self.absent), ("--opted-out", self.opted_out)):
            for name in names:
                check_known(name, dataset.sites, option)
        if self.fraction != 1:
            raise _refused("--fraction", f"{dataset.name} is used whole")
        if self.split or self.clients:
            raise _refused("--split", f"{dataset.name} is already partitioned by hospital; drop --split and --clients")
        return len(dataset.sites) - len(set(self.absent))

    def _run(self, method: str, seed: int, clients: int) -> Run:
        held, drawn = bool(DATASETS.get(self.dataset).sites), self.clients_per_round
        asked: dict[str, JsonValue] = {
            "federation.rounds": self.rounds if resolve(method)[1].trains else None,
            "train.epochs": self.epochs,
            "federation.sites_per_round": drawn,
            "federation.min_sites": drawn or (clients if held else None),
        }
        changes = {key: value for key, value in asked.items() if value is not None}
        job = job_for(
            self.dataset,
            method,
            split=self.split,
            clients=None if held else clients,
            model=self.model,
            seed=seed,
            changes=changes | self.settings | self.chosen.get(method, {}),
            demo=self.data == DEMO,
        )
        remark = ", ".join(self._remarks(method, job))
        selection = Selection(**self.model_dump(include=set(Selection.model_fields)))
        return Run(f"{method} ({remark})" if remark else method, job, clients, selection)

    def _remarks(self, method: str, job: JobConfig) -> list[str]:
        """Return what tells a row from the method of that name: its variant, and every option that is set here."""
        name, variant = job.method.name, methods.build(job.method).variant
        options = set(method_options(name)) - TOLD
        own = {key.removeprefix(f"{name}."): value for key, value in own_changes(method, self.settings).items()}
        own = {key: value for key, value in own.items() if key.startswith(SERVER) or key.partition(".")[0] in options}
        own |= {key.removeprefix(f"{name}."): value for key, value in self.chosen.get(method, {}).items()}
        settings = [f"{key.removeprefix('federation.')} {value}" for key, value in own.items()]
        return [*([variant] if variant else []), *settings]

    def _check_settings(self) -> None:
        """Refuse options that none of the methods has, the seed, which has an option of its own, and half a search."""
        if self.tune is not None and self.held_out:
            raise _refused("--tune", "it has held-out data of its own; drop --validate")
        if self.tune_rounds is not None and self.tune is None:
            raise _refused("--tune-rounds", "give --tune SEED as well")
        for key in self.settings:
            first, _, rest = key.partition(".")
            owners = [name for name in methods.available() if key in method_options(name) or (name == first and rest)]
            if first in PRESETS:
                check_known(first, self.methods, f"--set {key}")
            if owners and not set(owners) & {resolve(name)[0] for name in self.methods}:
                why = f"none of {', '.join(self.methods)} has this option"
                raise _refused(f"--set {key}", why, code="config.unknown-key")
            if key in ("seed", "method.name", "task.dataset", "task.split"):
                raise _refused(f"--set {key}", "use the option of the command instead")


def _refused(option: str, why: str, *, code: str = "config.conflict") -> ConfigError:
    return ConfigError(f"{option}: {why}.", code=code, key=option)
