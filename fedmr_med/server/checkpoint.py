"""The checkpoint of a chain: one file, written atomically, from which any job of the chain can resume.

It is read back and checked as a whole before it takes the place of the one before, which is kept beside it.
"""

from pathlib import Path
from typing import Any

from fedmr_med.arrays import difference, forms_of
from fedmr_med.config import JobConfig
from fedmr_med.errors import CheckpointError
from fedmr_med.evaluation.history import History
from fedmr_med.models.model_file import (
    AVERAGED,
    as_arrays,
    as_list,
    as_tensors,
    described,
    job_of,
    prototypes_of,
    read_tensors,
    whole_number,
    write_tensors,
)
from fedmr_med.models.provenance import Provenance
from fedmr_med.schema import brief, differences
from fedmr_med.server.state import GlobalState

_OLD_DIGEST = "configuration"
"""Key of checkpoints whose digest covered all defaults; their settings are compared by content."""

_OWN = {
    *("settings", "parameters", "prototypes", "method", "optimizer", "head", "accepted", "history"),
    *(AVERAGED, "backbone", _OLD_DIGEST),
}


def save_checkpoint(
    path: Path,
    state: GlobalState,
    job: JobConfig,
    *,
    previous: Path | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write the global state.

    Args:
        previous: keeps the checkpoint that was there before.
        provenance: where its model comes from; None tells of the job alone.

    Raises:
        CheckpointError: it could not be written, or would not be one to resume from; the file that was there before
            stays.
    """
    content = described(state.model, job, state.round, provenance) | {
        "settings": job.digest(),
        "parameters": sorted(state.parameters),
        "prototypes": as_list(state.prototypes),
        "method": as_tensors(state.method),
        "optimizer": as_tensors(state.optimizer),
        AVERAGED: as_tensors(state.averaged),
        "head": as_tensors(state.head),
        "accepted": dict(state.accepted),
        "history": state.history.model_dump_json(),
        # Its name alone: the server builds it anew from the job, and no round changes it.
        "backbone": None if state.backbone is None else state.backbone.digest,
    }
    write_tensors(path, content, check=lambda written: _state(written, path, job, state), previous=previous)


def load_checkpoint(path: Path, job: JobConfig, expected: GlobalState) -> GlobalState:
    """Read the global state that a job wants to resume from; ``expected`` is its initial one.

    Raises:
        CheckpointError: it cannot be read, is damaged, or belongs to another model or configuration.
    """
    return _state(read_tensors(path), path, job, expected)


def _state(content: dict[str, Any], path: Path, job: JobConfig, expected: GlobalState) -> GlobalState:
    """Return the state that a checkpoint holds, looked at from end to end."""
    try:
        state = GlobalState(
            model=as_arrays(content["model"]),
            parameters=frozenset(content["parameters"]),
            prototypes=prototypes_of(content["prototypes"]),
            method=as_arrays(content["method"]),
            optimizer=as_arrays(content["optimizer"]),
            averaged=as_arrays(content.get(AVERAGED, {})),
            head=as_arrays(content["head"]),
            round=whole_number(content["round"]),
            accepted=_accepted(content["accepted"]),
            history=History.model_validate_json(content["history"]),
            backbone=expected.backbone,
        )
        backbone = content["backbone"]
        settings = job_of(content, path).digest() if _OLD_DIGEST in content else content["settings"]
        changes = None
        if settings != job.digest():
            changes = "; ".join(differences(job_of(content, path).compared(), job.compared()))
        right = described({}, job, 0)
        known = content.keys() <= right.keys() | _OWN
        same = all(bool(content[key] == right[key]) for key in ("class_names", "normalisation"))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as e:
        raise CheckpointError(
            f"{path} is not a checkpoint of this toolkit ({brief(repr(e))}).", code="checkpoint.form"
        ) from e
    found = difference(state.model, forms_of(expected.model))
    if found:
        raise CheckpointError(
            f"{path} belongs to another model than {job.model.name} as configured: it {found}.",
            code="checkpoint.other-model",
        )
    if changes is not None:
        raise CheckpointError(
            f"{path} belongs to another configuration than this job ({brief(changes) or 'of another version'}). "
            "Use another chain id, or the settings the chain was started with.",
            code="checkpoint.other-settings",
        )
    if backbone != (None if expected.backbone is None else expected.backbone.digest):
        raise CheckpointError(
            f"{path} was made with other weights of the frozen backbone than the job has here; "
            "name the file that model.options.pretrained had, or start a new chain.",
            code="checkpoint.other-backbone",
            key="model.options.pretrained",
        )
    if not (known and same):
        raise CheckpointError(
            f"{path} is damaged: it has unknown keys, or other class names than the job.", code="checkpoint.form"
        )
    if damage := _damage(state, expected):
        raise CheckpointError(f"{path} is damaged: it has {damage}.", code="checkpoint.form")
    return state


def _accepted(content: Any) -> dict[str, int]:
    """Read the last round in which each site's reply counted."""
    if type(content) is not dict or not all(type(site) is str for site in content):
        raise TypeError("'accepted' does not name sites")
    return {site: whole_number(number) for site, number in content.items()}


def _damage(state: GlobalState, expected: GlobalState) -> str | None:
    """Say what of a state cannot be, though each part of it can be read."""
    kept, forms = forms_of(expected.method), forms_of(expected.model)
    method = {name: array for name, array in state.method.items() if name in kept}
    own = (state.prototypes.means, state.prototypes.available, state.prototypes.age)
    right = (expected.prototypes.means, expected.prototypes.available, expected.prototypes.age)
    told = state.history.rounds[-1].round if state.history.rounds else state.round
    faults = {
        "other trained parameters than the model": state.parameters != expected.parameters,
        "another state of the method than configured": difference(method, kept) is not None,
        "an averaged model of another size": any(forms.get(n) != f for n, f in forms_of(state.averaged).items()),
        "a head of another size": any(forms.get(name) != form for name, form in forms_of(state.head).items()),
        "prototypes of another size or type": any(
            a.shape != b.shape or a.dtype != b.dtype for a, b in zip(own, right, strict=True)
        ),
        "prototypes of negative age": bool((state.prototypes.age < 0).any()),
        f"a history of {told} rounds and a model of {state.round}": told != state.round,
        "a reply accepted in a round to come": any(number > state.round for number in state.accepted.values()),
    }
    return next((what for what, present in faults.items() if present), None) or state.defect()
