"""The layers stay apart: who may import whom, read from the source of every module."""

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, pairwise

import pytest

from tests.helpers import REPOSITORY
from tests.helpers.imports import PACKAGE, imports, room, sources, third_party

FLARE_ROOMS = {"flare", "deploy", "recipes", "client"}
FLARE_EXCEPTIONS = {"fedmr_med.lab.perf.stock"}  # what FLARE's own aggregation costs, to compare with
# Where the command line and Python find what the lab does, and where hospitals' processes are kept from importing it.
WHO_NAMES_THE_LAB = {"fedmr_med.cli.lab", "fedmr_med.runner.comparison", "fedmr_med.deploy.start"}
QUIET_ROOMS = {"data", "server", "site", "wire", "methods", "models"}
MOST_LAYERS = 12
PRESENTATION = {"rich", "typer", "jinja2", "tqdm"}
# From a tenth of a second to several: only what needs one of them imports it, when it needs it.
SLOW_TO_IMPORT = {
    *("torch._dynamo", "torch._inductor", "sympy", "torchvision", "monai", "dp_accounting", "onnx", "onnxruntime"),
    *("scipy", "sklearn", "pandas", "albumentations", "cv2", "PIL", "pydicom"),
}


def graph() -> dict[str, dict[str, set[str]]]:
    """Return per room the rooms it imports, each with the modules that do so."""
    rooms: dict[str, dict[str, set[str]]] = {room(module): {} for module in sources()}
    for module in sources():
        for name in imports(module):
            if name.split(".")[0] == PACKAGE and room(name) != room(module):
                rooms[room(module)].setdefault(room(name), set()).add(module)
    return rooms


def users_of(packages: set[str]) -> set[tuple[str, str]]:
    standard = frozenset(sys.stdlib_module_names)
    return {(module, name) for module in sources() for name in third_party(module, standard) & packages}


def test_imports_between_packages_point_one_way() -> None:
    rooms = graph()
    try:
        TopologicalSorter(rooms).prepare()
    except CycleError as e:
        # graphlib names each node before the one that needs it.
        cycle = e.args[1][::-1]
        arrows = [f"{a} -> {b} ({', '.join(sorted(rooms[a][b]))})" for a, b in pairwise(cycle)]
        raise AssertionError("packages import each other in a circle:\n" + "\n".join(arrows)) from None


def test_imports_between_packages_have_few_layers() -> None:
    """Each room lies above all that it imports. The lab counts as one: nothing that is installed lies above it."""
    below: dict[str, set[str]] = {}
    for name, imported in graph().items():
        whole = name.split(".")[0]
        below.setdefault(whole, set()).update({other.split(".")[0] for other in imported} - {whole})
    chains: dict[str, list[str]] = {}
    for name in TopologicalSorter(below).static_order():
        chains[name] = [name, *max((chains[other] for other in below[name]), key=len, default=[])]
    longest = max(chains.values(), key=len)
    assert len(longest) <= MOST_LAYERS, " -> ".join(longest)


def lab(module: str) -> bool:
    return room(module).split(".")[0] == "lab"


def strings(module: str) -> set[str]:
    """Return the texts of a module that it works with: all but docstrings."""
    tree = ast.parse(sources()[module].read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    }


def test_the_core_does_not_import_the_lab() -> None:
    core = [module for module in sources() if not lab(module)]
    assert [module for module in core if any(lab(name) for name in imports(module))] == []
    by_name = {module for module in core if any("fedmr_med.lab" in text for text in strings(module))}
    assert by_name == WHO_NAMES_THE_LAB


def test_few_modules_lie_at_the_root() -> None:
    modules = {path.stem for path in (REPOSITORY / PACKAGE).glob("*.py")} - {"__init__"}
    assert len(modules) <= 14, sorted(modules)


def test_flare_is_imported_by_its_adapters_only() -> None:
    users = {user for user in users_of({"nvflare"}) if room(user[0]) not in FLARE_ROOMS}
    assert {module for module, _ in users} <= FLARE_EXCEPTIONS


def test_flower_is_imported_by_its_adapter_only() -> None:
    assert {room(module) for module, _ in users_of({"flwr"})} == {"flower"}


def loaded_by(code: str) -> set[str]:
    """Return the modules of a process that runs ``code``, with every package that one of them is in."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return {parent for name in done.stdout.split() for parent in accumulate(name.split("."), "{}.{}".format)}


@pytest.mark.slow
def test_comparisons_and_studies_run_without_loading_flare() -> None:
    loaded = loaded_by("import fedmr_med.lab.bench.compare, fedmr_med.runner, fedmr_med.lab.studies.catalog")
    assert "fedmr_med.runner" in loaded
    assert "nvflare" not in loaded


def test_the_command_line_answers_help_without_what_does_the_work() -> None:
    loaded = loaded_by("import fedmr_med.cli")
    assert "fedmr_med.lab.cli.bench" in loaded
    assert not loaded & ({"torch", "numpy", "pydantic", "nvflare"} | SLOW_TO_IMPORT)


def test_settings_are_read_without_what_computes() -> None:
    loaded = loaded_by("import fedmr_med.config, fedmr_med.sites, fedmr_med.privacy.policy")
    assert "pydantic" in loaded
    assert not loaded & {"torch", "numpy", "cryptography"}


@pytest.mark.slow
def test_a_client_process_imports_nothing_that_training_does_not_need() -> None:
    # A step as well: torch loads its compiler with the first torch.optim.Optimizer.
    step = "client = Client(Case('small_cnn', 12, batch_size=2), 'fedmr'); client.prepare_steps(); client.step()"
    loaded = loaded_by(f"import fedmr_med.flare.executor\nfrom fedmr_med.lab.perf.workload import Case, Client\n{step}")
    assert {"torch", "nvflare"} <= loaded
    assert not loaded & (SLOW_TO_IMPORT | PRESENTATION - {"tqdm"}), "tqdm is imported by torch"


def test_presentation_stays_out_of_the_rooms_that_do_the_work() -> None:
    assert {user for user in users_of(PRESENTATION) if room(user[0]) in QUIET_ROOMS} == set()


def test_the_page_on_architecture_draws_the_tree_as_it_is() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text()
    tree = re.search(r"^fedmr_med/\n((?:  .*\n)+)", page, flags=re.MULTILINE)
    assert tree is not None, "the page draws the package as a tree"
    drawn, folder = set(), ""
    for indent, entry in re.findall(r"^( +)(\S+(?: \S+)*)", tree[1], flags=re.MULTILINE):
        names = [name.removesuffix("/").removesuffix(".py") for name in entry.split()]
        drawn |= {f"{folder}.{name}" for name in names} if len(indent) > 2 else set(names)
        folder = folder if len(indent) > 2 else names[-1]
    rooms = {room(module) for module in sources()} - {PACKAGE}
    assert drawn == rooms, f"only on the page: {drawn - rooms}; only in the package: {rooms - drawn}"
