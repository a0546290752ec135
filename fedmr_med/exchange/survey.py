"""A survey: what the sites hold, added up."""

from dataclasses import replace

from fedmr_med.config import TaskConfig
from fedmr_med.errors import WireError
from fedmr_med.evaluation.records import Held, SurveyRecord, Tone
from fedmr_med.exchange.base import Exchange
from fedmr_med.exchange.closing import Total
from fedmr_med.server.state import GlobalState
from fedmr_med.statistics.base import Origin
from fedmr_med.statistics.fields import add
from fedmr_med.statistics.survey import EDGES, SURVEY_STATISTIC, TONES, Survey, moments
from fedmr_med.wire.kinds import SURVEY
from fedmr_med.wire.messages import SiteReply

_DIGITS = 4


class SurveyExchange(Exchange):
    """What the sites tell of their images. No model is sent, and none is asked about."""

    kind = SURVEY

    def close(self, total: Total | None = None) -> GlobalState:
        """Return the state with what the sites hold put down."""
        with self._lock:
            self._closed = True
            surveys = {site: reply.of(SURVEY_STATISTIC) for site, reply in self._replies.items()}
            known = {site: found for site, found in surveys.items() if found is not None}
            secure = None
            if total is None:
                parts = [SURVEY_STATISTIC.values(found) for found in known.values()]
                whole = SURVEY_STATISTIC.read(add(*parts), Origin(len(known))) if parts else None
                silent = tuple(sorted(surveys.keys() - known.keys()))
            else:
                silent = ()
                whole, secure = total.of(SURVEY_STATISTIC)
            record = SurveyRecord(
                sites={site: held(found, self.job.task) for site, found in known.items()},
                total=None if whole is None else held(whole, self.job.task),
                silent=silent,
                refused=dict(sorted(self._refused.items())),
                secure=secure,
            )
        return replace(self.state, history=self.state.history.model_copy(update={"survey": record}))

    def _take(self, reply: SiteReply) -> None:
        most, survey = self.job.federation.max_samples, reply.of(SURVEY_STATISTIC)
        if survey is not None and max(survey.train.sum(), survey.test.sum()) > most:
            raise WireError(f"it reports more than {most} images", code="wire.counts", key="survey")
        super()._take(reply)


def held(survey: Survey, task: TaskConfig) -> Held:
    """Return what a survey tells, by name."""
    subgroups: dict[str, dict[str, int]] = {}
    for (column, level), count in zip(task.levels, survey.levels.tolist(), strict=True):
        subgroups.setdefault(column, {})[level] = count
    tones = zip(TONES, *moments(survey), strict=True) if survey.measured.any() else ()
    return Held(
        train=tuple(survey.train.tolist()),
        test=tuple(survey.test.tolist()),
        edges={edge: count for edge, count in zip(EDGES, survey.edges.tolist(), strict=True) if count},
        subgroups=subgroups,
        doubles=int(survey.doubles[0]),
        measured=int(survey.measured[0]),
        tones={
            name: Tone(mean=round(float(mean), _DIGITS), deviation=round(float(deviation), _DIGITS))
            for name, mean, deviation in tones
        },
    )
