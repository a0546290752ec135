"""The errors a user can cause and fix.

Every message is one or two sentences and names the file or key to fix. The command line prints the message
alone, without a stack trace, and exits with code 2. The sentence may change with any release; the code stays.
"""

import copy
from typing import Any, Self


class FedMRError(Exception):
    """Base of all errors whose message is meant for the user.

    Args:
        message: the sentence.
        code: the fault as a stable name for programs, ``<area>.<what>``, such as ``config.unknown-key``. Faults that
            are met in the same way share a code.
        key: what has to be changed: a setting (``federation.min_sites``), an option (``--split``), or the part of a
            message that is at fault (``prototypes``).
    """

    def __init__(self, message: str, *, code: str, key: str | None = None):
        super().__init__(message)
        self.code, self.key = code, key

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross from worker processes. By default they are made anew from the message alone, without a code.
        return _remade, (type(self), str(self)), vars(self)

    def reworded(self, message: str) -> Self:
        """Return the same error with another sentence."""
        error = copy.copy(self)
        error.args = (message,)
        return error

    def at(self, where: str) -> Self:
        """Return the same error with ``where`` before its sentence."""
        return self.reworded(f"{where}: {self}")


def _remade(kind: type[FedMRError], message: str) -> FedMRError:
    return kind.__new__(kind, message)


class ConfigError(FedMRError):
    """A configuration file or value is missing, unreadable or not valid."""


class DataError(FedMRError):
    """A dataset is missing, incomplete or inconsistent."""


class PolicyError(FedMRError):
    """A site policy is missing or not valid; nothing is shared."""


class WireError(FedMRError):
    """A message between server and site does not have the agreed form."""


class CheckpointError(FedMRError):
    """A checkpoint cannot be read, or belongs to another model or configuration."""


class ResultsError(FedMRError):
    """A results file cannot be read, or another version of the toolkit wrote it."""


class DeployError(FedMRError):
    """The federation's server cannot be reached, refuses a request, or a job ended before its last round."""
