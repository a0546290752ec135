"""What mkdocs needs to know of this repository: pages that live elsewhere in it, and pages made from the package.

The siblings of the README stay where people look for them. Here they become pages, with the links between them turned
into links between pages; a link to anything else becomes plain text.
"""

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.main import get_command

from fedmr_med.cli import app

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "fedmr_med"
PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "threat-model.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "provisioning/README.md": "runbook.md",
    "provisioning/DATA-PROTECTION.md": "data-protection.md",
    "sites/README.md": "sites.md",
    "examples/README.md": "examples/index.md",
}
PAGES |= {f"docs/{path.name}": path.name for path in (ROOT / "docs").glob("*.md")}
EXAMPLES = {f"examples/{path.name}": f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")}
TUTORIALS = {
    f"docs/tutorials/{path.name}": f"tutorials/{path.stem}.md"
    for path in sorted((ROOT / "docs" / "tutorials").iterdir())
    if path.suffix in (".py", ".ipynb")
}
PAGES["docs/tutorials/README.md"] = "tutorials/README.md"
COMMANDS = "<!-- every command -->"
_LINK = re.compile(r"(?<!!)\[([^]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_IMAGE = re.compile(r"(!\[[^]]*\])\(([^):\s]+)\)")
_ROLE = re.compile(r":(?:func|class|meth|mod|attr|data):(?=<code>)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add tutorials, examples and the API pages to the navigation."""
    assert config.nav is not None
    chapters = {title: pages for entry in config.nav for title, pages in entry.items()}
    scripts = ["tutorials/README.md", *sorted(TUTORIALS.values())]
    for entry in config.nav:
        if "Tutorials" in entry:
            entry["Tutorials"] = [{"Your first federation": "first-federation.md"}, {"Notebooks and scripts": scripts}]
    for entry in chapters["How-to guides"]:
        if "Examples" in entry:
            entry["Examples"] = ["examples/index.md", *sorted(EXAMPLES.values())]
    api = [{title: f"api/{name}.md"} for name, title in _rooms().items()]
    chapters["Reference"].append({"Every function (API)": api})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for source, page in PAGES.items():
        if not source.startswith("docs/") and source != "README.md":  # whose place docs/index.md takes
            files.append(File.generated(config, page, content=_linked((ROOT / source).read_text(), source, page)))
    for source, page in (EXAMPLES | TUTORIALS).items():
        text = _notebook(ROOT / source) if source.endswith(".ipynb") else _example(ROOT / source)
        files.append(File.generated(config, page, content=_linked(text, source, page)))
    for name in _rooms():
        files.append(File.generated(config, f"api/{name}.md", content=_api(name)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of the pages that are in docs/."""
    if page.file.generated_by:
        return markdown
    if page.file.src_uri == "commands.md":
        markdown = markdown.replace(COMMANDS, _commands())
    return _linked(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Drop the Sphinx roles that docstrings use: Markdown does not know them."""
    return _ROLE.sub("", html)


def _linked(text: str, source: str, page: str) -> str:
    """Turn links between files of the repository into links between pages, and those to pictures likewise."""

    def pictured(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2])).removeprefix("docs/")
        return f"{match[1]}({posixpath.relpath(path, posixpath.dirname(page) or '.')})"

    def turned(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        other = (PAGES | EXAMPLES | TUTORIALS).get(path) or PAGES.get(f"{path}/README.md")
        return f"[{label}]({posixpath.relpath(other, posixpath.dirname(page) or '.')}{anchor})" if other else label

    return _IMAGE.sub(pictured, _LINK.sub(turned, text))


def _example(script: Path) -> str:
    text = script.read_text()
    docstring = ast.get_docstring(ast.parse(text)) or ""
    code = text.split('"""', 2)[2].lstrip()
    return f"# {script.name}\n\n{docstring}\n\n```python\n{code}```\n"


def _notebook(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in texts) + "\n"


def _commands() -> str:
    """Return every command with what it does, its arguments and its options, as the command line has them."""
    return "\n".join(_command(get_command(app), "fedmr-med"))


def _command(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for word, below in sorted(command.commands.items()):
            yield from _command(below, f"{name} {word}")
        return
    yield f"## {name}\n\n{(command.help or '').strip()}\n"
    rows = [
        f"| `{' '.join(part.opts) if part.param_type_name == 'option' else part.name.upper()}` | {_help(part)} |"
        for part in command.params
        if part.name != "help"
    ]
    if rows:
        yield "\n".join(["| argument | meaning |", "|---|---|", *rows, ""])


def _help(part: Any) -> str:
    said = getattr(part, "help", None) or ""
    return " ".join(said.replace("|", "\\|").replace("<", "&lt;").split())


def _rooms() -> dict[str, str]:
    """Return the API pages by name, each with its title: the public names, the root modules, then every package."""
    packages = sorted(path.parent.name for path in (ROOT / PACKAGE).glob("*/__init__.py"))
    return {"index": "Public names", "modules": "Root modules"} | {name: name for name in packages}


def _api(name: str) -> str:
    if name == "index":
        names = "".join(f"- [`{PACKAGE}.{public}`][{home}]\n" for public, home in sorted(_public().items()))
        return f"# Public names\n\nEach is imported when it is first used.\n\n{names}"
    if name == "modules":
        files = [path for path in (ROOT / PACKAGE).glob("*.py") if path.stem != "__init__"]
        title = "Root modules"
    else:
        files = list((ROOT / PACKAGE / name).rglob("*.py"))
        title = f"{PACKAGE}.{name}"
    dotted = (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in files)
    modules = sorted(module.removesuffix(".__init__") for module in dotted)
    return f"# {title}\n" + "".join(f"\n::: {module}\n" for module in modules)


def _public() -> dict[str, str]:
    """Return the public names, each with where it is defined: as the package tells type checkers."""
    tree = ast.parse((ROOT / PACKAGE / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if node.module and node.module.startswith(PACKAGE)]
    return {alias.name: f"{node.module}.{alias.name}" for node in ours for alias in node.names}
