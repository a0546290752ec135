"""The files around the package: they name one version, and what they run exists."""

import re
import runpy
import tomllib

import yaml

import fedmr_med
from tests.helpers import REPOSITORY
from tests.helpers.imports import sources

PACKAGE = REPOSITORY / "fedmr_med"


def test_package_citation_and_changelog_name_one_version() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert fedmr_med.__version__ == version
    assert yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())["version"] == version
    released = re.findall(r"^## \[(\d.*?)\]", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert released[0] == version


def test_the_files_that_people_look_for_are_there_and_the_readme_leads_to_them() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for name in ("LICENSE", "CITATION.cff", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/"):
        assert (REPOSITORY / name).exists(), name
        assert f"]({name})" in readme, name


def test_the_readme_is_one_screen() -> None:
    assert 600 <= len((REPOSITORY / "README.md").read_text().split()) <= 800


def test_the_workflow_runs_targets_of_the_makefile() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text())
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))
    assert runs
    for run in runs:
        program, target, *_ = run.split()
        assert program == "make"
        assert target in targets


def test_the_hooks_need_no_network() -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in hooks["repos"]} == {"local"}
    assert {hook["id"] for repo in hooks["repos"] for hook in repo["hooks"]} == {"ruff", "ruff-format", "mypy"}


def test_the_reference_of_settings_is_what_the_schema_says() -> None:
    page = runpy.run_path(str(REPOSITORY / "docs/settings.py"))["page"]()
    assert (REPOSITORY / "docs/settings.md").read_text() == page, "python docs/settings.py writes it anew"
    assert "| `min_class_count` | a whole number from 1 | `11` |" in page


def test_the_diagrams_are_what_their_script_draws() -> None:
    script = runpy.run_path(str(REPOSITORY / "docs/diagrams.py"))
    for name, diagram in script["DIAGRAMS"].items():
        assert (script["PICTURES"] / f"{name}.svg").read_text() == diagram.svg(), (
            "python docs/diagrams.py draws it anew"
        )


def test_every_guide_has_a_picture() -> None:
    (guides,) = re.findall(r"- How-to guides:\n((?: {6}.*\n)+)", (REPOSITORY / "mkdocs.yml").read_text())
    pages = [page for page in re.findall(r": ([\w./-]+\.md)$", guides, re.MULTILINE) if "examples" not in page]
    assert len(pages) > 8
    for page in pages:
        path = REPOSITORY / ("provisioning/README.md" if page == "runbook.md" else f"docs/{page}")
        found = re.findall(r"!\[([^]]+)\]\(([^)]+)\)", path.read_text())
        assert any(len(said) > 40 and (path.parent / picture).is_file() for said, picture in found), page


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("*/README.md")]
    broken = [
        f"{document.relative_to(REPOSITORY)}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text())
        if "://" not in target and not (document.parent / target).exists()
    ]
    assert not broken


def test_files_that_documents_name_exist() -> None:
    for document in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "provisioning/README.md"):
        named = re.findall(r"`([\w./]+/\w+\.(?:py|yml|md))`", (REPOSITORY / document).read_text())
        missing = [name for name in named if not any((place / name).exists() for place in (PACKAGE, REPOSITORY))]
        assert not missing, document


def test_what_documents_import_exists() -> None:
    """Only some of their code is run; this finds a module or a name that has moved in all of it."""
    broken = []
    for document in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("docs/**/*.py")):
        for module, names in re.findall(r"from (fedmr_med[\w.]*) import ([\w, ]+)", document.read_text()):
            path = sources().get(module)
            said = "" if path is None else path.read_text() + " ".join(other.stem for other in path.parent.iterdir())
            broken += [
                f"{document.relative_to(REPOSITORY)}: {module}.{name}"
                for name in re.findall(r"\w+", names)
                if not re.search(rf"\b{name}\b", said)
            ]
    assert not broken


def test_contributing_sends_nobody_to_a_module_that_is_not_there() -> None:
    _, rooms = (REPOSITORY / "CONTRIBUTING.md").read_text().split("## The rooms")
    named = re.findall(r"`([\w/]+(?:/|\.py))`", rooms.partition("## How to add")[0])
    assert len(named) > 20
    assert [name for name in named if not any((place / name).exists() for place in (PACKAGE, REPOSITORY))] == []
