"""Why a site gives no reply, as one word of a fixed list: the only thing about it that leaves the site.

An error's own message may name files, classes or patients, so it stays in the site's log and journal. The words that
the coordinator reads are made at the server, from this table.
"""

from fedmr_med.errors import ConfigError, DataError, FedMRError, PolicyError, WireError


class NotApprovedError(PolicyError):
    """A person at the site has not approved the job yet, or has refused it."""


class WeightsError(NotApprovedError):
    """A job starts from weights that are not its own seed's, and that nobody at the site has approved."""


class ClassNamesError(PolicyError):
    """A job names the classes otherwise than the site does, so that a label would mean something else."""


class BudgetError(PolicyError):
    """A round of training would cost more than is left of the site's privacy budget for training."""


class NoFeaturesError(WireError):
    """A site has no features of the frozen network, and did not receive the network to make them."""


FLOORS = {
    "method": "the method",
    "model": "the network",
    "batch_size": "the batch size",
    "updates": "the number of steps in a round",
    "lr": "the learning rate",
    "sites": "federation.min_sites",
    "secure": "federation.secure",
    "head": "the classifier that the server sent",
    "norm": "the size of what the server sent",
    "repeat": "a round asked again with another model",
    "private": "training without noise, or with too little (train.private)",
    "held_out": "a share that it sets aside (head.held_out or train.validation)",
    "jobs_per_day": "the number of jobs in a day",
}
"""What a site's training floors can refuse, in words."""


class FloorError(PolicyError):
    """A job does not keep to a training floor of the site.

    Args:
        floor: one of :data:`FLOORS`; this word alone leaves the site.
        reason: for the site's own log.
    """

    def __init__(self, floor: str, reason: str):
        super().__init__(reason, code=f"floor.{floor.replace('_', '-')}")
        self.word = floor_code(floor)


def floor_code(floor: str) -> str:
    """Return the word for a floor that a job does not keep to."""
    if floor not in FLOORS:
        raise KeyError(floor)
    return f"FEDMR_FLOOR_{floor.upper()}"


NOT_APPROVED, POLICY, DATA = "FEDMR_NOT_APPROVED", "FEDMR_POLICY", "FEDMR_DATA"
BUDGET, WEIGHTS, COHORT = "FEDMR_BUDGET", "FEDMR_WEIGHTS", "FEDMR_COHORT"
CLASSES, FEATURES = "FEDMR_CLASSES", "FEDMR_FEATURES"
CONFIG, TASK, FAILED = "FEDMR_CONFIG", "FEDMR_TASK", "EXECUTION_EXCEPTION"

# The first class that fits counts.
_CODES: dict[type[FedMRError], str] = {
    WeightsError: WEIGHTS,
    NotApprovedError: NOT_APPROVED,
    ClassNamesError: CLASSES,
    BudgetError: BUDGET,
    PolicyError: POLICY,
    DataError: DATA,
    ConfigError: CONFIG,
    NoFeaturesError: FEATURES,
    WireError: TASK,
}
WORDS = {
    NOT_APPROVED: "it has not approved these settings (there: fedmr-med site jobs)",
    WEIGHTS: "it has not approved the weights that the job starts from (there: fedmr-med site jobs)",
    CLASSES: "the job names the classes otherwise than the site does (there: classes in site.yaml)",
    BUDGET: "its privacy budget for training is used up",
    COHORT: "its secure totals are over other sites, or over all of these (there: fedmr-med site cohort show)",
    POLICY: "its policy does not allow what the job asks",
    **{floor_code(floor): f"its training floors do not allow {what}" for floor, what in FLOORS.items()},
    DATA: "its images cannot be used (there: fedmr-med site check)",
    CONFIG: "its settings or the job's are not valid there (there: fedmr-med site check)",
    FEATURES: "it has no features of the frozen network; it receives the network again in the next round",
    TASK: "the task is not of the form it expects",
    FAILED: "its training failed; its log says why",
    "EXECUTION_RESULT_ERROR": "its training failed; its log says why",
    "TASK_RESULT_FILTER_ERROR": "its filter or guard kept the reply in; its log says why",
    "TASK_DATA_FILTER_ERROR": "its filter refused the task; its log says why",
    "TASK_ABORTED": "its work was stopped",
    "TASK_UNKNOWN": "it does not know this task",
    "UNSAFE_JOB": "FLARE considers the job unsafe there",
}


def code_of(error: FedMRError) -> str:
    """Return the word for an error at a site."""
    if isinstance(error, FloorError):
        return error.word
    if error.code in ("secure.other-cohort", "secure.not-whole"):
        return COHORT
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), FAILED)


def in_words(code: str) -> str:
    """Return a sentence for the coordinator about a reply without content."""
    return WORDS.get(code, f"it answered {code}")
