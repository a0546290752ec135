"""The linters find what FLARE would silently ignore."""

import copy
from typing import Any

import pytest

from fedmr_med.deploy import kit


def spoil(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with one value replaced; ``None`` removes it."""
    content = copy.deepcopy(content)
    place: Any = content
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("scopes", [], "no filter at all"),
        ("scopes", None, "no filter at all"),
        ("default_scope", "public", "default_scope"),
        ("default_scope", None, "default_scope"),
        ("scopes.0.task_result_filter", [{"path": kit.FILTER}], "unknown key 'task_result_filter'"),
        ("scopes.0.task_result_filters", [], "lacks"),
        ("scopes.0.task_result_filters.0.direction", "in", "direction"),
        ("scopes.0.task_result_filters.0.path", "nvflare.x.Y", "lacks"),
        ("scopes.0.task_result_filters.0.drection", "out", "unknown key"),
        ("components", None, "lacks"),
        ("components.0.disabled", True, "lacks"),
        ("component", [], "unknown key"),
    ],
)
def test_lint_privacy(path: str, value: Any, message: str) -> None:
    assert kit.lint_privacy(kit.site_privacy()) == []
    problems = kit.lint_privacy(spoil(kit.site_privacy(), path, value))
    assert any(message in problem for problem in problems), problems


def test_the_guard_comes_before_the_audit_log() -> None:
    content = kit.site_privacy()
    content["components"].reverse()
    assert kit.lint_privacy(content) == ["components must list the guard before the audit log"]


def test_every_scope_needs_the_filter() -> None:
    content = kit.site_privacy()
    content["scopes"].append({"name": "other"})
    assert kit.lint_privacy(content) == [f"scopes[1].task_result_filters lacks {kit.FILTER}"]


@pytest.mark.parametrize("role", ["project_admin", "org_admin", "lead", "member"])
@pytest.mark.parametrize("right", ["byoc", "shell_commands"])
def test_nobody_brings_code_or_gets_a_shell(role: str, right: str) -> None:
    assert kit.authorization()["permissions"][role][right] == "none"
    opened = spoil(kit.authorization(), f"permissions.{role}.{right}", "o:site")
    assert kit.lint_authorization(opened) == [f"{role} has the right {right}; set it to none"]


@pytest.mark.parametrize("content", [{}, None, {"permissions": {}}])
def test_an_empty_authorization_is_found(content: Any) -> None:
    assert "FLARE would allow everything" in kit.lint_authorization(content)[0]


def test_a_role_with_all_rights_is_found() -> None:
    assert kit.lint_authorization({"permissions": {"project_admin": "any"}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_allow_list": ["*"]}, "extra entry '*'"),
        ({"class_allow_list": [*kit.SITE_CLASSES, "subprocess.Popen"]}, "subprocess.Popen"),
        ({"class_allow_list": None}, "FLARE would use its own list"),
        ({"class_list_enforcement_mode": "warn"}, "not enforce"),
        ({"allow_log_streaming": True}, "allow_log_streaming"),
    ],
)
def test_lint_resources(change: dict[str, Any], message: str) -> None:
    locked = kit.site_resources({"components": []})
    assert kit.lint_resources(locked) == []
    assert message in "; ".join(kit.lint_resources(locked | change))
