"""The errors a user can cause and fix.

Every message is one or two sentences and names the file or key to fix. The command line prints the message
alone, without a stack trace, and exits with code 2.
"""


class FedMRError(Exception):
    """Base of all errors whose message is meant for the user."""


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
