"""The linters find what FLARE would silently ignore."""

import copy
from typing import Any

import pytest

from fedmr_med.deploy import kit, lint


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


GUARD, AUDIT = kit.site_privacy()["components"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("scopes", [], "scopes is []"),
        ("scopes", None, "scopes is null"),
        ("scopes", [*kit.site_privacy()["scopes"], {"name": "other"}], "other"),
        ("default_scope", "public", "default_scope"),
        ("default_scope", None, "default_scope"),
        ("scopes.0.task_result_filter", [{"path": kit.FILTER}], "unknown key 'task_result_filter'"),
        ("scopes.0.task_result_filters", [], f'has to be [{{"path": "{kit.FILTER}"}}]'),
        ("scopes.0.task_result_filters.0.direction", "in", "direction"),
        ("scopes.0.task_result_filters.0.path", "nvflare.x.Y", "nvflare.x.Y"),
        ("scopes.0.task_result_filters.0.drection", "out", "unknown key"),
        ("components", None, "components is null"),
        ("components", [AUDIT, GUARD], f'has to be "{kit.GUARD}"'),
        ("components", [GUARD, AUDIT, {"id": "spy", "path": "spy.Spy"}], "spy.Spy"),
        ("components.0.disabled", True, "unknown key"),
        ("component", [], "unknown key"),
    ],
)
def test_lint_privacy(path: str, value: Any, message: str) -> None:
    assert lint.lint_privacy(kit.site_privacy()) == []
    problems = lint.lint_privacy(spoil(kit.site_privacy(), path, value))
    assert any(message in problem for problem in problems), problems


def test_an_unknown_role_and_a_wider_right_are_found() -> None:
    content = kit.authorization()
    content["permissions"]["guest"] = {"view": "any"}
    content["permissions"]["member"]["download_job"] = "any"
    content["permissions"]["lead"]["submit_job"] = "none"
    assert lint.lint_authorization(content) == [
        "member has the right download_job; set it to none",
        "guest is not a role of this toolkit; remove it",
    ], "fewer rights are no problem"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"require_signed_jobs": False}, "anybody's job"),
        ({"require_signed_jobs": "true"}, "anybody's job"),
        ({"client": {"connection_security": "clear"}}, "not mtls"),
        ({"client": None}, "not mtls"),
    ],
)
def test_lint_startup(change: dict[str, Any], message: str) -> None:
    content = {"require_signed_jobs": True, "client": {"connection_security": "mtls"}}
    assert lint.lint_startup(content) == []
    assert message in lint.lint_startup(content | change)[0]
    server = {"servers": [{"connection_security": "tls"}]}
    assert lint.lint_startup(server, server=True) == ["connection_security is not mtls"]


@pytest.mark.parametrize("role", ["project_admin", "org_admin", "lead", "member"])
@pytest.mark.parametrize("right", ["byoc", "shell_commands"])
def test_nobody_brings_code_or_gets_a_shell(role: str, right: str) -> None:
    assert kit.authorization()["permissions"][role][right] == "none"
    opened = spoil(kit.authorization(), f"permissions.{role}.{right}", "o:site")
    assert lint.lint_authorization(opened) == [f"{role} has the right {right}; set it to none"]


@pytest.mark.parametrize("content", [{}, {"permissions": {}}, {"permissions": ["any"]}])
def test_an_empty_authorization_is_found(content: Any) -> None:
    assert "FLARE would allow everything" in lint.lint_authorization(content)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class_allow_list": ["*"]}, 'class_allow_list[0] is "*"'),
        ({"class_allow_list": [*kit.SITE_CLASSES, "subprocess.Popen"]}, "subprocess.Popen"),
        ({"class_allow_list": None}, "class_allow_list is null"),
        ({"class_list_enforcement_mode": "warn"}, 'class_list_enforcement_mode is "warn" and has to be "enforce"'),
        ({"allow_log_streaming": True}, "allow_log_streaming"),
        ({"components": []}, f"lacks {kit.SITE_START}"),
        ({"components": [{"id": "spy", "path": "spy.Spy"}]}, "extra entry spy.Spy"),
    ],
)
def test_lint_resources(change: dict[str, Any], message: str) -> None:
    locked = kit.site_resources({"components": []})
    assert lint.lint_resources(locked) == []
    assert message in "; ".join(lint.lint_resources(locked | change))
