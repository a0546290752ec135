"""Lines of a site's journal, for people at a terminal: parts of them come from jobs."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

_FEW = 7


def summary(lines: tuple[dict[str, Any], ...]) -> Iterator[str]:
    """Say what left: a paragraph for each job, a line in it for each exchange."""
    from fedmr_med.schema import printable

    return map(printable, _said(lines))


def _said(lines: tuple[dict[str, Any], ...]) -> Iterator[str]:
    for job in dict.fromkeys(line["job"] for line in lines):
        mine = [line for line in lines if line["job"] == job]
        refused = Counter(str(line.get("reason") or line["code"]) for line in mine if line["code"] != "OK")
        size = sum(line["bytes"] for line in mine) / 1e6
        yield (f"{mine[0]['time']} job {job}: {len(mine)} replies, {size:.1f} MB; {refused.total()} without content")
        left = [line for line in mine if line["code"] == "OK"]
        for task in dict.fromkeys(line["task"] for line in left):
            replies = [line for line in left if line["task"] == task]
            content = [_part(part, replies) for part in sorted({name for line in replies for name in line["parts"]})]
            content += sorted({f"metrics {line['metrics']}" for line in replies if "metrics" in line})
            yield (f"    {task} ({len(replies)}x): {'; '.join(content) or 'no arrays'}")
            weights = list(dict.fromkeys(line["weights"] for line in replies if "weights" in line))
            if weights:
                others = f", and of {len(weights) - 1} others later" if len(weights) > 1 else ""
                yield (f"        of weights with SHA-256 {weights[0]}{others}")
        for reason, times in refused.items():
            yield (f"    {times}x nothing left: {reason}")


def _part(name: str, replies: list[dict[str, Any]]) -> str:
    """Say what of one part left: its classes where it has some, else its fields where there are few."""
    parts = [line["parts"][name] for line in replies if name in line["parts"]]
    classes = Counter(label for part in parts for label in part.get("classes", ()))
    fields = list(dict.fromkeys(field for part in parts for field in part.get("shapes", ())))
    told = f" ({', '.join(fields) if len(fields) <= _FEW else f'{len(fields)} arrays'})" if fields else ""
    of = f" of {', '.join(f'{label} ({count}x)' for label, count in classes.items())}" if classes else ""
    return f"{name}{told}{of}"
