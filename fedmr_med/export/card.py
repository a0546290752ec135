"""The model card: what a clinic should know of a model before it is used, filled from the run that made it.

Its headings follow the points of TRIPOD+AI (Collins et al., BMJ 2024), TRIPOD-Cluster (2023) and FUTURE-AI (2025) that
a training run can answer; what people have to answer is left to them, and said to be open.
"""

from pathlib import Path

from pydantic import JsonValue

from fedmr_med.evaluation.catalog import described, names_in
from fedmr_med.evaluation.figures import Figures
from fedmr_med.evaluation.history import History
from fedmr_med.evaluation.score import Evaluation
from fedmr_med.export.source import Source
from fedmr_med.files import write_json, write_text
from fedmr_med.privacy.explain import privacy_costs
from fedmr_med.report.elements import rendered
from fedmr_med.report.lines import chosen_line
from fedmr_med.report.pages.groups import worst, worst_site
from fedmr_med.schema import Strict
from fedmr_med.version import installed

BY_GROUP = "Age, sex and skin type or other groups of the patients, and results by group"
OPEN = (
    "Ethical approval, consent and the legal basis at each hospital",
    "How the reference labels were made, and by whom",
    BY_GROUP,
    "A clinical study of what decisions change with the model",
)


class SiteCard(Strict):
    """What may be told of one site: its images as it told them, its part, and its results if it shares them."""

    training_images: int | None = None
    rounds: int = 0
    shared_prototypes: tuple[str, ...] = ()
    scores: str = "held back"
    figures: Figures | None = None


class Card(Strict):
    """The content of ``model_card.json``."""

    name: str
    demo: bool
    intended_use: str
    limits: tuple[str, ...]
    classes: tuple[str, ...]
    missing_classes: tuple[str, ...]
    protocol: dict[str, JsonValue]
    sites: dict[str, SiteCard]
    pooled: Figures | None
    pooled_sites: tuple[str, ...]
    coverage: str
    fairness: tuple[str, ...] = ()
    chosen: str | None
    privacy: tuple[str, ...]
    lineage: tuple[str, ...] = ()
    open_points: tuple[str, ...]
    versions: dict[str, str]
    model_sha256: str


def write_card(source: Source, folder: Path) -> list[Path]:
    """Write ``docs/README.md``, where MONAI looks for it, and ``docs/model_card.json``."""
    card = make_card(source)
    paths = [folder / "docs" / "README.md", folder / "docs" / "model_card.json"]
    write_text(paths[0], markdown(card))
    write_json(paths[1], card.model_dump(mode="json"))
    return paths


def make_card(source: Source) -> Card:
    """Collect what the model file and the results tell."""
    saved, evaluation, history = source.saved, source.evaluation, source.history
    job = saved.job
    pooled = evaluation.pooled_figures if evaluation else None
    classes = list(zip(job.task.class_names, pooled.classes, strict=True)) if pooled else []
    sites = _sites(history, evaluation)
    return Card(
        name=job.name,
        demo=source.is_demo,
        intended_use=f"Research on the classification of {job.task.dataset} images. Not a medical device.",
        limits=_limits(source, pooled, sites),
        classes=job.task.class_names,
        missing_classes=tuple(name for name, found in classes if found.status != "scored"),
        protocol={
            "network": job.model.name,
            "method": job.method.name,
            "options": job.method.options,
            "rounds": saved.round,
            "training": job.train.model_dump(mode="json"),
            "image size": job.task.image_size,
            "transform": job.task.transform,
            "preparation": source.preparation,
            "BatchNorm statistics": job.federation.buffers,
            "seed": job.seed,
            "temperature": saved.temperature,
            "closed-form head": bool(saved.about.get("closed_form_head", False)),
            "results": None if source.run is None else "of the run that made this model",
        },
        sites=sites,
        pooled=pooled,
        pooled_sites=evaluation.pooled_sites if evaluation else (),
        coverage=evaluation.coverage if evaluation else "",
        fairness=_fairness(evaluation, job.task.class_names) if evaluation else (),
        chosen=history.why_last(job.task.class_names),
        privacy=_privacy(source, sites),
        lineage=tuple(left.text for left in saved.lineage),
        open_points=tuple(p for p in OPEN if p is not BY_GROUP or not (evaluation and evaluation.subgroups)),
        versions=saved.provenance.code if saved.provenance else installed(),
        model_sha256=source.digest,
    )


def _sites(history: History, evaluation: Evaluation | None) -> dict[str, SiteCard]:
    names = history.sites | ({*evaluation.sites, *evaluation.held_back} if evaluation else set())
    cards = {}
    for name in sorted(names):
        taken = history.parts_of(name)
        told = evaluation.sites.get(name) if evaluation else None
        found = evaluation.figures.get(name) if evaluation else None
        cards[name] = SiteCard(
            training_images=(taken[-1].samples or None) if taken else None,
            rounds=len(taken),
            shared_prototypes=tuple(dict.fromkeys(label for part in taken for label in part.shared_classes)),
            scores="per class" if found else told.text() if told else "held back",
            figures=found,
        )
    return cards


def _limits(source: Source, pooled: Figures | None, sites: dict[str, SiteCard]) -> tuple[str, ...]:
    names = source.saved.job.task.class_names
    limits = ["Scored on test images of the hospitals that trained it; no outside hospital is among them."]
    if source.evaluation is not None:
        limits.append(chosen_line(source.evaluation))
        if why := source.evaluation.why_missing:
            limits.append(why)
    if source.is_demo:
        limits.append("Trained on GENERATED pictures (the demo). No figure here is a medical result.")
    if pooled is None:
        limits.append("No results are at hand for this model.")
        return tuple(limits)
    for name, found in zip(names, pooled.classes, strict=True):
        if found.status != "scored":
            limits.append(f"{name}: no test image that could be counted.")
        elif (auroc := found.metrics.get("auroc")) and (auroc.high or 0) - (auroc.low or 0) > 0.1:
            limits.append(f"{name}: {found.positives} test images; the AUROC is uncertain by more than 0.1.")
    silent = [name for name, card in sites.items() if card.figures is None]
    if silent:
        limits.append(f"Not in the pooled results: {', '.join(silent)}.")
    return tuple(limits)


def _fairness(evaluation: Evaluation, names: tuple[str, ...]) -> tuple[str, ...]:
    """Say which hospital and which subgroups are served worst, and what a new hospital may expect."""
    lines = [*worst_site(evaluation), *worst(evaluation)]
    lines += [
        f"{names[one.label]}: the {one.name} in a new hospital is "
        f"expected between {one.low:.2f} and {one.high:.2f} (95 %; {one.sites} hospitals, typically {one.mean:.2f})."
        for one in evaluation.between
    ]
    silent = [
        column for column, levels in evaluation.subgroups.items() if not any(one.figures for one in levels.values())
    ]
    return (*lines, *(f"No score by {column} may leave the hospitals." for column in silent))


def _privacy(source: Source, sites: dict[str, SiteCard]) -> tuple[str, ...]:
    job = source.saved.job
    opted_out = [name for name, card in sites.items() if card.rounds and not card.shared_prototypes]
    lines = [
        "The images stayed at each hospital. Its trained model left in every round, and can reveal something of them.",
        f"Sites that shared no prototypes (class means of features): {', '.join(opted_out) or 'none'}.",
        "Counts and scores below a hospital's own minimum (min_class_count, min_cell_count) were held back.",
    ]
    if job.federation.secure != "none":
        lines.append(f"Secure sums: {job.federation.secure}.")
    return (*lines, *privacy_costs(source.history))


def markdown(card: Card) -> str:
    """Return a card as a page."""
    return rendered(
        Path(__file__).with_name("model_card.md"),
        escaped=False,
        card=card,
        classes=list(zip(card.classes, card.pooled.classes, strict=True)) if card.pooled else [],
        class_metrics=names_in(found.metrics for found in card.pooled.classes) if card.pooled else (),
        metric=described,
    )
