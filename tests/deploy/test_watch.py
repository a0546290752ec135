"""Watching a chain, with a scripted server: what is said, when a follow-up is sent, when it gives up."""

import json
from pathlib import Path

import pytest

from fedmr_med.deploy.session import JobInfo, JobState, ServerLostError
from fedmr_med.deploy.watch import Watcher, progress_line
from fedmr_med.errors import DeployError
from fedmr_med.files import write_text
from fedmr_med.jobs.catalog import isic_job
from fedmr_med.schema import dump_yaml
from tests.helpers.errors import raises

DONE = JobState("FINISHED:COMPLETED", alive=False)
FAILED = JobState("FINISHED:EXECUTION_EXCEPTION", alive=False, detail=("msk: OK", "bcn: BYOC not permitted"))
RUNNING = JobState("RUNNING", alive=True)
GHOST = JobState("RUNNING", alive=False)
RESTARTED = JobState("RUNNING", alive=False, restarted=True)


def info(job: str, owner: str = "lead@example.org") -> JobInfo:
    return JobInfo(job, "job1", "isic", owner, "2026-11-17T18:00:00", "RUNNING", tuple("abcdef"), 4)


# Another person's job that names the chain.
FOREIGN = (info("foreign", "eve@example.org"),)


class Script:
    """A server that says what it is told to say, one answer per look."""

    def __init__(self, kit: Path, answers: list[JobState | Exception], rounds: list[int] | None = None):
        self.kit = kit
        self.answers = answers
        self.rounds = rounds or []
        self.submitted: list[Path] = []
        self.address = "fl.example.org:8002"
        self.connected = tuple("abcdef")

    def state(self, job: str) -> JobState:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def progress(self, job: str) -> dict | None:
        return progress(self.rounds.pop(0)) if self.rounds else None

    def jobs(self) -> tuple[JobInfo, ...]:
        mine = [info(f"job{number + 1}") for number in range(len(self.submitted) + 1)]
        return (mine[0], *FOREIGN, *mine[1:])

    def server_log(self, job: str) -> str:
        reason = "Round 1 has 2 usable replies."
        return f"2026-11-17 18:00:00 - ERROR - Aborting current RUN due to FATAL_SYSTEM_ERROR received: {reason}\n"

    def hospitals(self) -> tuple[str, ...]:
        return self.connected

    def submit(self, folder: Path) -> str:
        self.submitted.append(folder)
        return f"job{len(self.submitted) + 1}"


def progress(round_number: int, **changes: object) -> dict:
    return {
        "round": round_number,
        "rounds": 4,
        "answered": ["bcn"],
        "waiting": ["msk"],
        "refused": {},
        "balanced_accuracy": None,
        "score": None,
        "seconds_left": None,
    } | changes


def watch(tmp_path: Path, answers: list, *, resume: bool = True, rounds: list[int] | None = None) -> tuple:
    folder = tmp_path / "chains" / "job1"
    write_text(folder / "job" / "isic" / "meta.json", json.dumps({"deploy_map": {"app": ["server"]}}))
    write_text(folder / "job" / "isic" / "app" / "config" / "fedmr.yaml", dump_yaml(isic_job("fedmr")))
    script, said = Script(tmp_path, answers, rounds), []
    watcher = Watcher(script, "job1", said.append, poll=0.0, patience=5)
    return watcher.run(resume=resume), said, script


def test_a_job_that_completes(tmp_path: Path) -> None:
    watched, said, _ = watch(tmp_path, [RUNNING] * 6 + [DONE], rounds=[1, 1])
    assert watched.jobs == ("job1",)
    assert said == ["job job1: running", progress_line(progress(1))], "a line is said once"


def test_a_job_that_ended_before_the_first_look_is_seen_with_its_hospitals(tmp_path: Path) -> None:
    """A page that is written at every look named no hospital of such a job."""
    seen: list[tuple[JobInfo, str, tuple[str, ...], dict[str, object] | None]] = []
    script = Script(tmp_path, [DONE])
    Watcher(script, "job1", lambda line: None, poll=0.0, see=lambda *look: seen.append(look)).run(resume=False)
    assert seen == [(info("job1"), DONE.status, script.connected, None)]


def test_lines_of_sites_are_said_once_and_who_is_waited_for_when_it_is_quiet(tmp_path: Path) -> None:
    said: list[str] = []
    watcher = Watcher(Script(tmp_path, []), "job1", said.append, poll=0.0)
    lines = ["round 2/4 · bcn · 240 images", "refused the reply of msk: NaN"]
    begun, waits = progress(1, waiting=["bcn", "msk", "x"]), progress(1, waiting=["x"], lines=lines)
    watcher._show(begun)
    watcher._show(progress(1, waiting=["msk", "x"], lines=lines[:1], seconds_left=100.0))
    watcher._show(progress(1, waiting=["x"], lines=lines, seconds_left=98.0))
    watcher._show(waits)
    watcher._show(waits | {"seconds_left": 96.0})
    watcher._show(progress(2, lines=lines))
    assert said == [progress_line(begun), *lines, progress_line(waits), progress_line(progress(2))]


def test_a_job_short_of_hospitals_says_which(tmp_path: Path) -> None:
    script, said = Script(tmp_path, [JobState("SUBMITTED", alive=True), DONE]), []
    script.connected = ("a", "c")
    Watcher(script, "job1", said.append, poll=0.0, patience=5).run(resume=False)
    assert said == ["job job1: needs 4 hospitals, connected 2: a, c; not connected: b, d, e, f"]


def test_a_failed_job_is_resumed_until_the_chain_is_complete(tmp_path: Path) -> None:
    watched, said, script = watch(tmp_path, [FAILED, RUNNING, FAILED, DONE])
    assert watched.jobs == ("job1", "job2", "job3")
    assert len(script.submitted) == 2
    assert any("bcn: BYOC not permitted; Round 1 has 2 usable replies" in line for line in said)


def test_a_job_under_which_the_server_was_restarted_is_resumed(tmp_path: Path) -> None:
    answers = [
        RUNNING,
        ServerLostError("gone", code="server.unreachable"),
        ServerLostError("gone", code="server.unreachable"),
        RESTARTED,
        DONE,
    ]
    watched, said, _ = watch(tmp_path, answers)
    assert len(watched.jobs) == 2
    assert "waiting: gone" in said
    assert any("the server was restarted under it" in line for line in said)


def test_a_server_that_is_restarted_often_is_no_reason_to_give_up(tmp_path: Path) -> None:
    watched, _, _ = watch(tmp_path, [*[RESTARTED] * 5, DONE])
    assert len(watched.jobs) == 6


def test_a_job_whose_process_is_gone_for_good_is_resumed(tmp_path: Path) -> None:
    watched, said, _ = watch(tmp_path, [RUNNING, *[GHOST] * 5, DONE])
    assert len(watched.jobs) == 2
    assert any("its process is gone" in line for line in said)


def test_a_process_that_is_late_is_not_a_ghost(tmp_path: Path) -> None:
    watched, _, _ = watch(tmp_path, [GHOST, GHOST, RUNNING, GHOST, DONE])
    assert watched.jobs == ("job1",)


def test_without_resume_the_command_to_go_on_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="deploy watch job1 --resume"):
        watch(tmp_path, [FAILED], resume=False)


def test_jobs_that_get_nowhere_end_the_watch(tmp_path: Path) -> None:
    with raises("chain.no-progress"):
        watch(tmp_path, [FAILED] * 3)


def test_jobs_that_make_progress_are_resumed_as_often_as_needed(tmp_path: Path) -> None:
    answers = [state for _ in range(6) for state in (*[RUNNING] * 5, FAILED)] + [DONE]
    watched, _, _ = watch(tmp_path, answers, rounds=[0, 1, 1, 2, 3, 4])
    assert len(watched.jobs) == 7


def test_a_server_that_never_comes_back_ends_the_watch(tmp_path: Path) -> None:

    script = Script(tmp_path, [ServerLostError("gone", code="server.unreachable")] * 10**6)
    with pytest.raises(ServerLostError):
        Watcher(script, "job1", lambda line: None, poll=0.0, patience=0.2).run(resume=True)


def test_the_line_says_round_hospitals_metric_and_time_left() -> None:
    score = "model after round 0: balanced accuracy 0.432 (8 of 8 classes, 3 of 3 sites)"
    line = progress_line(progress(1, refused={"bcn": "NaN"}, score=score, seconds_left=200.0))
    assert line == f"round 2/4 · in: bcn · waiting for: msk · refused: bcn (NaN) · {score} · about 3 min left"
    assert progress_line(progress(4)).startswith("all 4 rounds done, scoring the model")
    assert progress_line(progress(4, asked="head")).startswith("all 4 rounds done, making the closed-form head")
    # A job without rounds has one exchange.
    assert progress_line(progress(0, rounds=0, asked="validate")).startswith("scoring the model · in:")
    assert progress_line(progress(0, rounds=0, asked="head")).startswith("making the closed-form head · in:")
