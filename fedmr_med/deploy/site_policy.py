"""Changing a hospital's policy, and saying in plain words what it means."""

import io
from pathlib import Path
from typing import Any

from fedmr_med.deploy.manifest import write_seal
from fedmr_med.errors import PolicyError
from fedmr_med.files import write_text
from fedmr_med.privacy.floors import TrainingFloors
from fedmr_med.privacy.policy import SitePolicy
from fedmr_med.schema import read_yaml, validated
from fedmr_med.sites import SITE_FILE, SiteConfig, load_site

_APPROVALS = {
    "always": "Jobs that keep to this policy start by themselves; `fedmr-med site jobs` lists them.",
    "new_settings": "A job starts only with settings that a person here has approved (`fedmr-med site jobs`).",
    "each": "Each chain starts only after a person here has approved it (`fedmr-med site jobs`).",
}


def policy_of(kit: Path) -> SitePolicy:
    """Return the policy in a kit.

    Raises:
        ConfigError: there is none, or it is not valid.
    """
    return load_site(kit / "local" / SITE_FILE).policy


def set_policy(kit: Path, changes: dict[str, Any], class_names: tuple[str, ...] | None) -> SitePolicy:
    """Change settings of the policy in a kit, write it and seal the kit with the site's own key.

    Executor, filter and guard all read this one file. Its comments and its layout stay.

    Args:
        kit: the hospital's kit.
        changes: new values by name.
        class_names: the classes that exist, if known.

    Raises:
        PolicyError: a value is not valid, or a class does not exist.
        ConfigError: the site file is not valid, or the kit has no key to seal it with.
    """
    path = kit / "local" / SITE_FILE
    content = read_yaml(path)
    validated(SiteConfig, content, str(path))
    wanted = {**(content.get("policy") or {}), **changes}
    policy = validated(SitePolicy, wanted, str(path), PolicyError)
    unknown = set(policy.share_prototypes if isinstance(policy.share_prototypes, tuple) else ()) - set(
        class_names or ()
    )
    if class_names and unknown:
        raise PolicyError(f"{sorted(unknown)[0]!r} is not one of the classes {', '.join(class_names)}.")
    write_text(path, _edited(path.read_text(encoding="utf-8"), changes))
    write_seal(kit)
    return policy


def explain(policy: SitePolicy) -> list[str]:
    """Say in plain sentences what leaves the hospital under a policy."""
    shared = policy.share_prototypes
    exact = "the number of training images"
    if policy.round_samples > 1:
        exact += f", rounded to {policy.round_samples} and without classes too small to leave"
    lines = [f"Leaves in every round: the trained model and {exact}."]
    if shared is False or shared == ():
        lines.append(
            "Prototypes: none leave, nor class counts. The hospital still receives the global prototypes and trains "
            "with both losses of FedMR."
        )
    else:
        which = "every class" if shared is True else f"the classes {', '.join(shared)}"
        lines.append(
            f"Prototypes: the sum of features and the number of images of {which}, where there are at least "
            f"{policy.min_class_count} training images; for a closed-form head also how the features of these classes "
            "vary together (one matrix for all of them)."
        )
    level = "scalar" if policy.share_metrics == "per_class" and shared in (False, ()) else policy.share_metrics
    enough = f"the classes with at least {policy.min_class_count} of them"
    lines.append(
        {
            "none": "Metrics: none leave, nor local training losses and times.",
            "scalar": f"Metrics: accuracy, balanced accuracy and number of test images, over {enough}; training losses "
            "and times.",
            "per_class": "Metrics: the confusion matrix on the local test images, which tells how many test images of "
            f"each shared class there are, over {enough}; training losses and times.",
        }[level]
    )
    lines.append(
        "Local models are handed out on request (submit_model)."
        if policy.allow_submit_model
        else "Local models go to the aggregation only; submit_model is refused."
    )
    lines.append(_floors(policy.training))
    lines.append(_APPROVALS[policy.approve])
    lines.append(
        "The trained model can reveal something of the data, such as the number of images of each class, whatever "
        "this policy says: see SECURITY.md."
    )
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


def _edited(text: str, changes: dict[str, Any]) -> str:
    """Return the text of a site file with other values in its policy."""
    from ruamel.yaml import YAML

    editor = YAML()
    editor.preserve_quotes = True
    editor.width = 120
    content = editor.load(text)
    policy = content.setdefault("policy", {})
    for key, value in changes.items():
        policy[key] = list(value) if isinstance(value, tuple) else value
    stream = io.StringIO()
    editor.dump(content, stream)
    return stream.getvalue()
