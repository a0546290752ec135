"""Mutated files: checkpoints, settings, results and tables are read, or refused in a sentence."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from fedmr_med.arrays import difference, forms_of
from fedmr_med.config import load_job
from fedmr_med.data.manifest import read_manifest
from fedmr_med.errors import FedMRError
from fedmr_med.evaluation.results import RunResults, read_result
from fedmr_med.models.model_file import load_model
from fedmr_med.schema import dump_yaml
from fedmr_med.server.chain import Chain
from fedmr_med.server.checkpoint import load_checkpoint, save_checkpoint
from fedmr_med.server.state import initial_state
from fedmr_med.sites import DemoSource, SiteConfig, load_site
from tests.helpers.fuzz.mutate import Random, mutated, mutated_array, mutated_bytes
from tests.helpers.fuzz.replies import Setup
from tests.helpers.small import OPEN

LABELS = {"MEL": 0, "NV": 1, "BCC": 2}
LONGEST = 600


class Files:
    """Good files of each kind, and what reads them."""

    def __init__(self, folder: Path):
        setup = Setup("feddyn", folder / "sites")
        self.job, self.state = setup.job, setup.states[-1]
        self.expected = initial_state(self.job)
        chain = Chain(folder / "chain", self.job)
        chain.save(self.state)
        chain.write_results(self.state)
        self.checkpoint = chain.checkpoint.read_bytes()
        self.content = torch.load(chain.checkpoint, weights_only=True)
        site = SiteConfig(data=DemoSource(source="demo", center=1), policy=OPEN)
        rows = "".join(f"img{n}.png,{('MEL', 'NV', 'BCC')[n % 3]},{('train', 'test')[n % 2]}\n" for n in range(9))
        self.texts = {
            "fedmr.yaml": dump_yaml(self.job),
            "site.yaml": dump_yaml(site),
            "results.json": (chain.folder / "results.json").read_text(),
            "manifest.csv": "image,label,fold\n" + rows,
        }
        self.readers: dict[str, Callable[[Path], object]] = {
            "fedmr.yaml": load_job,
            "site.yaml": load_site,
            "results.json": lambda path: read_result(path, RunResults),
            "manifest.csv": lambda path: read_manifest(path, LABELS),
            "checkpoint bytes": self.read_checkpoint,
            "checkpoint": self.read_checkpoint,
            "weights": self.read_weights,
        }

    def read_checkpoint(self, path: Path) -> None:
        """Read a checkpoint; what is taken must be whole, finite, and one that can be written again."""
        load_model(path)
        state = load_checkpoint(path, self.job, self.expected)
        assert state.defect() is None
        assert type(state.round) is int and state.round >= 0
        assert state.parameters == self.expected.parameters
        save_checkpoint(path.with_suffix(".again"), state, self.job)

    def read_weights(self, path: Path) -> None:
        """Read weights that a job brings; what is taken has the network's own form."""
        state = initial_state(self.job, path)
        assert state.defect() is None
        assert difference(state.model, forms_of(self.expected.model)) is None


def fuzz(count: int, folder: Path, seed: int) -> Counter[str]:
    """Read ``count`` mutated files; return what became of them.

    Raises:
        Exception: a reader raised something else than an error for the user, or took what the rules forbid.
    """
    random = np.random.default_rng(seed)
    files = Files(folder)
    kinds = ("checkpoint bytes", "checkpoint", "weights", *files.texts)
    outcome: Counter[str] = Counter()
    for number in range(count):
        kind = kinds[number % len(kinds)]
        path = folder / "mutant"
        _write(path, kind, files, random)
        try:
            files.readers[kind](path)
            outcome[f"{kind} taken"] += 1
        except FedMRError as e:
            assert 0 < len(str(e)) < LONGEST, f"{kind}: {str(e)[:LONGEST]}"
            outcome[f"{kind} refused"] += 1
    outcome["files"] = count
    return outcome


def _write(path: Path, kind: str, files: Files, random: Random) -> None:
    """Write a mutated file: its bytes, or its content by structure."""
    if kind == "checkpoint bytes":
        path.write_bytes(mutated_bytes(files.checkpoint, random))
    elif kind == "checkpoint":
        _write_checkpoint(path, files.content, random)
    elif kind == "weights":
        # A state dict as torch saves it: no digest in it tells that it was changed.
        _save(path, _with_mutant(files.content["model"], random))
    elif kind == "manifest.csv" or random.random() < 0.5:
        path.write_bytes(mutated_bytes(files.texts[kind].encode(), random))
    else:
        json_file = kind == "results.json"
        content = mutated(json.loads(files.texts[kind]) if json_file else yaml.safe_load(files.texts[kind]), random, 2)
        path.write_text(json.dumps(content, default=str) if json_file else _as_yaml(content))


def _write_checkpoint(path: Path, content: dict[str, Any], random: Random) -> None:
    plain = {key: value for key, value in content.items() if key not in ("model", "method", "prototypes")}
    mutant: Any = content
    if random.random() < 0.4:
        mutant = {**content, **mutated(plain, random)}
        for key in plain.keys() - mutated(plain, random).keys():
            del mutant[key]
    else:
        part = str(random.choice(["model", "method"]))
        mutant = {**content, part: _with_mutant(content[part], random)}
    _save(path, mutant)


def _with_mutant(arrays: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return arrays of which one is mutated."""
    name = str(random.choice(list(arrays)))
    array = mutated_array(arrays[name].numpy(), random)
    value: Any = torch.from_numpy(np.ascontiguousarray(array)) if array.dtype.kind in "fiubc" else array.tolist()
    return {**arrays, name: value}


def _save(path: Path, content: Any) -> None:
    try:
        torch.save(content, path)
    except Exception:
        torch.save({"format": 2}, path)  # what cannot be written cannot be a file


def _as_yaml(content: Any) -> str:
    try:
        return yaml.safe_dump(content)
    except (yaml.YAMLError, RecursionError):
        return repr(content)
