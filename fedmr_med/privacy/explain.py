"""A policy in plain sentences: what leaves a site under it, what it demands of jobs, and what it cannot keep in."""

from fedmr_med.evaluation.history import History
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.policy import SitePolicy

UPDATE_SPEAKS = (
    "The trained model leaves every site, also one that has opted out. It can reveal something of its data, such as "
    "the number of images of each class: see SECURITY.md."
)
"""What no policy changes. README, SECURITY.md, ``site policy explain`` and every report say it in these words."""

TOTAL_SPEAKS = (
    "The trained model leaves this site in a total over all sites alone (docs/security.md says who would have to "
    "collude to open it). The total, and the model made of it, can still reveal something of the data: see SECURITY.md."
)
"""What ``policy.training.secure: all`` leaves to say in the place of :data:`UPDATE_SPEAKS`."""

_SCATTER = "; for a closed-form head also how the features of these classes vary together (one matrix for all of them)"
_APPROVALS = {
    "always": "Jobs that keep to this policy start by themselves; `fedmr-med site jobs` lists them.",
    "new_settings": "A job starts only with settings that a person here has approved (`fedmr-med site jobs`).",
    "each": "Each chain starts only after a person here has approved it (`fedmr-med site jobs`).",
}


def explain(policy: SitePolicy) -> list[str]:
    """Say in plain sentences what leaves the hospital under a policy."""
    shared = policy.share_prototypes
    exact = "the number of training images"
    if policy.round_samples > 1:
        exact += f", rounded to {policy.round_samples} and without classes too small to leave"
    summed = "none" if policy.training is None else policy.training.secure
    how = ", as a part of a secure sum of all sites" if summed == "all" else ""
    lines = [f"Leaves in every round{how}: the trained model and {exact}."]
    if summed != "none":
        lines.append("Secure sums: prototypes and scores leave as a part of a total of all sites, or not at all.")
    if shared is False or shared == ():
        lines.append(
            "Prototypes: none leave, nor class counts. The hospital still receives the global prototypes and trains "
            "with all terms of FedMR."
        )
    else:
        which = "every class" if shared is True else f"the classes {', '.join(shared)}"
        lines.append(
            f"Prototypes: the sum of features and the number of images of {which}, where there are at least "
            f"{policy.min_class_count} training images{_SCATTER if policy.share_scatter else ''}."
        )
        if (dominance := policy.dominance(brings_weights=True)) is not None:
            where = " of jobs that bring weights" if policy.max_share is None else ""
            lines.append(f"Single images: in sums without noise{where} {dominance.sentence()}.")
    if policy.privacy is not None and not (shared is False or shared == ()):
        lines.append(
            f"Privacy budget: class sums leave only with noise (federation.private in a job), at least "
            f"{policy.privacy.min_noise:g} times what one image can change, and only until all releases together have "
            f"cost epsilon {policy.privacy.epsilon:g} at delta {policy.privacy.delta:g}. Scores and the trained model "
            "are not part of it."
        )
    if policy.training_privacy is not None:
        budget = policy.training_privacy
        lines.append(
            f"Training budget: the hospital trains only for jobs with noise on the gradients (train.private), at least "
            f"{budget.min_noise:g} times what one image can change, and only until all rounds together have cost "
            f"epsilon {budget.epsilon:g} at delta {budget.delta:g}; then it refuses to train. Training losses do not "
            "leave. Prototypes, scores and the number of images are not part of it."
        )
    level = "scalar" if policy.share_metrics == "per_class" and shared in (False, ()) else policy.share_metrics
    enough = f"the classes with at least {policy.least_tested} of them"
    told = "training losses and times" if policy.training_privacy is None else "times of training"
    lines.append(
        {
            "none": "Metrics: none leave, nor local training losses and times.",
            "scalar": f"Metrics: accuracy, mean recall and number of test images, over {enough}; {told}.",
            "per_class": "Metrics: the confusion matrix on the local test images, which tells how many test images of "
            f"each shared class there are, over {enough}; {told}.",
        }[level]
    )
    lines += small_cells(policy)
    lines += survey(policy)
    lines.append(
        "Local models are handed out on request (submit_model)."
        if policy.allow_submit_model
        else "Local models go to the aggregation only; submit_model is refused."
    )
    lines.append(_floors(policy.training))
    lines += [key.sentence() for key in policy.added]
    lines.append(_APPROVALS[policy.approve])
    lines.append(TOTAL_SPEAKS if summed == "all" else UPDATE_SPEAKS)
    return lines


def small_cells(policy: SitePolicy) -> list[str]:
    """Say what the rule of small cells costs, or that there is none; nothing where no score leaves."""
    least = policy.min_cell_count
    if policy.share_metrics == "none":
        return []
    if least == 1:
        return ["Small cells: scores may reveal single test images of the classes that count (min_cell_count: 1)."]
    return [
        f"Small cells: a class counts only with no right answer or at least {least}, and no wrong one or at least "
        f"{least}. Rarer kinds of errors are joined, and score histograms stay then. So small test folds and good "
        "models have no score; set min_cell_count to 1 where you may."
    ]


def survey(policy: SitePolicy) -> list[str]:
    """Say what a survey is told, and by which columns of the table images are counted and scored."""
    told = {
        "none": "Survey: nothing leaves.",
        "counts": "Survey: the number of images of each class",
        "images": "Survey: the number of images of each class, their sizes, brightness, colors and doubles",
    }[policy.share_survey]
    if policy.share_survey != "none":
        told += f", where there are at least {policy.min_class_count}."
    columns = policy.share_subgroups
    if columns is False or columns == ():
        return [told]
    which = "any column of the table that a job names" if columns is True else ", ".join(columns)
    return [told, f"Subgroups: images are counted and scored by {which}, under the same rules of small numbers."]


def privacy_costs(history: History) -> list[str]:
    """Say what noisy releases have cost each site by its latest report; nothing where none had noise."""
    lines = []
    kinds = {"prototypes": "epsilon", "model updates": "training_epsilon", "both together": "total_epsilon"}
    for what, key in kinds.items():
        latest = {
            site: cost
            for record in history.rounds
            for site, part in record.sites.items()
            if (cost := getattr(part, key)) is not None
        }
        if latest:
            figures = ", ".join(f"{site} {cost:.2f}" for site, cost in sorted(latest.items()))
            lines.append(f"Differential privacy of {what}, epsilon over all jobs of a site so far: {figures}.")
    return lines


def _floors(floors: TrainingFloors | None) -> str:
    if floors is None:
        return "Training: any settings of a job are taken."
    names = f"method {' or '.join(floors.methods)}" if floors.methods else "any method"
    model = " or ".join(floors.models) if floors.models else "any network"
    repeat = "" if floors.repeat_rounds else "; no round is answered again for another model"
    daily = f"; at most {floors.max_jobs_per_day} jobs a day" if floors.max_jobs_per_day else ""
    return (
        f"Training: only for jobs with {names} and {model}, batches of {floors.min_batch_size} to "
        f"{floors.max_batch_size} images and at least {floors.min_batches} of them, at least {floors.min_updates} "
        f"steps a round, learning rate {floors.min_lr:g} to {floors.max_lr:g} and at least {floors.min_sites} sites, "
        f"and not from a classifier of zeros or equal rows{repeat}{daily}. This makes attacks by a job harder, not "
        "impossible."
    )
