"""Flower's two apps for a job: what runs at the server, and what runs at a site."""

import logging
from collections.abc import Callable

import flwr.app
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedmr_med.errors import FedMRError
from fedmr_med.exchange.events import Event
from fedmr_med.exchange.loop import run
from fedmr_med.exchange.plan import plan
from fedmr_med.flower.messages import META, NAME, TYPES, to_message, to_records
from fedmr_med.flower.transport import FlowerTransport
from fedmr_med.privacy.refusals import FAILED, code_of
from fedmr_med.process import kept_memory, set_threads
from fedmr_med.server.chain import Chain
from fedmr_med.site.engine import Site

_CLIENT_APP_FAILED = 2  # Flower's number for an app that gives no answer

_log = logging.getLogger(__name__)


def server_app(chain: Chain, on_event: Callable[[Event], None] = lambda event: None, *, nodes: int = 0) -> ServerApp:
    """Return the app that runs a chain's job; what comes out is in the chain's folder.

    It waits for so many nodes; for ``federation.min_sites`` of them if 0.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: flwr.app.Context) -> None:
        state = chain.open()
        try:
            run(plan(chain.job), state, FlowerTransport(grid, chain.job.federation, nodes), chain, on_event)
        finally:
            chain.close()

    return app


def client_app(site_of: Callable[[flwr.app.Context], tuple[str, Site]]) -> ClientApp:
    """Return the app that answers for a site.

    Args:
        site_of: returns the name and the site of a node, by its context; it can be pickled.
    """
    app = ClientApp()

    @app.query(NAME.removeprefix("query."))
    def name(message: flwr.app.Message, context: flwr.app.Context) -> flwr.app.Message:
        content = flwr.app.RecordDict({META: flwr.app.ConfigRecord({NAME: site_of(context)[0]})})
        return flwr.app.Message(content, reply_to=message)

    def register(kind: str, flower_type: str) -> None:
        category, _, action = flower_type.partition(".")

        @getattr(app, category)(*([action] if action else []))
        def answer(message: flwr.app.Message, context: flwr.app.Context) -> flwr.app.Message:
            return _answered(kind, message, *site_of(context))

    for kind, flower_type in TYPES.items():
        register(kind, flower_type)
    return app


def _answered(kind: str, message: flwr.app.Message, name: str, site: Site) -> flwr.app.Message:
    """Let a site answer. Flower would send the text of an error, which may name files of the site: one word leaves."""
    set_threads(default=1)
    try:
        with kept_memory():
            answer = site.answer(kind, to_message(message.content))
    except FedMRError as e:
        _log.warning("%s: %s", name, e)
        return flwr.app.Message(flwr.app.Error(_CLIENT_APP_FAILED, code_of(e)), reply_to=message)
    except Exception:
        _log.exception("%s: no answer to %s", name, kind)
        return flwr.app.Message(flwr.app.Error(_CLIENT_APP_FAILED, FAILED), reply_to=message)
    return flwr.app.Message(to_records(answer), reply_to=message)
