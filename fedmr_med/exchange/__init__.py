"""What the server asks of the sites, in which order, and what it makes of the answers; whatever carries them.

:func:`run` does a job's plan (:mod:`fedmr_med.exchange.plan`) over a :class:`Transport`. Beneath it, :class:`Server`
says what to ask next, takes answers and closes a step. At the other end, :class:`fedmr_med.site.engine.Site` answers.
"""

from fedmr_med.exchange.loop import Server, Task, run
from fedmr_med.exchange.transport import Answer, Grace, Stopped, Transport

__all__ = ["Answer", "Grace", "Server", "Stopped", "Task", "Transport", "run"]
