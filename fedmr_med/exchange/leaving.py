"""Sites that leave a chain: what they gave is taken out of its closed-form head, and they are asked no more.

The head is a function of a sum, so without a site's statistics it is exactly the head of a chain that never had the
site. The statistics of the others are kept (:mod:`fedmr_med.server.kept_head`), and are compared anew. Of a secure sum
the total alone is kept: the site sends its vector, negated, if a person there says so, and the server learns that part.

Weights that a site has trained are another matter: no sum says what they would be without it.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedmr_med.errors import FedMRError, WireError
from fedmr_med.evaluation.history import Best
from fedmr_med.evaluation.records import HeadRecord, SecureRecord, Withdrawal
from fedmr_med.exchange.closing import Total
from fedmr_med.exchange.head import VECTOR, HeadExchange
from fedmr_med.exchange.transport import Answer, Transport
from fedmr_med.models.reply_forms import reply_form
from fedmr_med.secure import FEWEST
from fedmr_med.secure.messages import Part, Release
from fedmr_med.server.chain import Chain
from fedmr_med.server.kept_head import TOTAL
from fedmr_med.server.state import GlobalState
from fedmr_med.wire.codec import Message
from fedmr_med.wire.kinds import SECURE
from fedmr_med.wire.secure import ASK_PART, RELEASE, SITES, Question, decode_answer, encode_question


def take_out(state: GlobalState, transport: Transport, chain: Chain) -> GlobalState:
    """Return the state without the sites that the job says have left; it is on disk, and their files are not.

    Raises:
        FedMRError: a site has no part in the chain, or cannot be taken out of its head; the message says why.
    """
    for site in chain.job.federation.without:
        if site not in state.history.left:
            state = _without(site, state, transport, chain)
    return state


def _without(site: str, state: GlobalState, transport: Transport, chain: Chain) -> GlobalState:
    history = state.history
    if not history.knows(site):
        raise FedMRError(
            f"{site} has no part in the chain {chain.id}; federation.without names sites that have.",
            code="withdraw.no-part",
            key="federation.without",
        )
    trained, head = [record.round for record in history.rounds_of(site)], history.head
    in_head = head is not None and site in {*head.sites, *(head.kept or {})}
    since = min([*trained, *([head.round] if head and in_head else [])], default=None)
    left = Withdrawal(
        site=site,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        round=state.round,
        models=() if since is None else chain.released(since),
        retrain_from=trained[0] - 1 if trained else None,
    )
    new = state if head is None else _with_head(_head_without(site, head, in_head, state, transport, chain))
    withdrawn = (*history.withdrawn, left)
    new = replace(new, history=new.history.model_copy(update={"withdrawn": withdrawn}))
    chain.leave(new)
    return new


def _head_without(
    site: str, head: HeadRecord, in_head: bool, state: GlobalState, transport: Transport, chain: Chain
) -> GlobalState:
    """Return the state with a head that does not have the site, and that nobody has scored yet."""
    history = state.history
    best = None if history.best is None or history.best.head else history.best
    if not in_head:
        unscored = head.model_copy(update={"evaluation": None})
        return replace(state, history=history.model_copy(update={"head": unscored, "best": best}))
    bare = replace(state, head={}, history=history.model_copy(update={"head": None, "no_head": None, "best": best}))
    if head.round != state.round:  # its features are of a model that went on; the plan makes another head
        return bare
    if head.kept is None:
        raise FedMRError(
            f"The chain {chain.id} keeps nothing of what its head is made of (head.keep), so {site} cannot be taken "
            "out. Start a new chain without it.",
            code="withdraw.nothing-kept",
            key="head.keep",
        )
    exchange, files = HeadExchange(chain.job, bare), {name: file for name, file in head.kept.items() if name != site}
    total = None
    if TOTAL in head.kept:
        total = _total_without(site, chain.kept.read(TOTAL, head.kept[TOTAL]), transport, chain)
    else:
        for name, message in chain.kept.read_all(files).items():
            exchange.offer(name, message)
    new = exchange.close(total)
    record = new.history.head
    if record is None:
        raise FedMRError(
            f"Without {site} the statistics give no head; start a new chain without it.", code="withdraw.no-head"
        )
    if total is not None:
        files = {name: chain.kept.write(name, message) for name, message in exchange.kept(total)}
    moved_nothing = {"kept": files, "bytes_up": 0, "bytes_down": 0}
    return replace(new, history=new.history.model_copy(update={"head": record.model_copy(update=moved_nothing)}))


def _with_head(state: GlobalState) -> GlobalState:
    """Return the state with a model to keep: with the new head, where the old head's was kept."""
    if state.history.best is not None:
        return state
    best = Best(round=state.round, head=bool(state.head))
    return replace(state, history=state.history.model_copy(update={"best": best}))


def _total_without(site: str, kept: Message, transport: Transport, chain: Chain) -> Total:
    """Return a secure total without the vector of a site, which sends it for that.

    Raises:
        FedMRError: too few sites would be left, the vector has noise, or the site does not send it.
    """
    job, release = chain.job, str(kept.meta[RELEASE])
    rest = tuple(name for name in kept.meta[SITES] if name != site)
    if job.federation.private is not None:
        raise FedMRError(
            f"{site} has only a share of the noise on its part of the total, and would show it with too little. Start "
            "a new chain without it.",
            code="withdraw.noise",
            key="federation.private",
        )
    least = max(FEWEST, job.federation.min_sites)
    if len(rest) < least:
        raise FedMRError(
            f"Without {site} the total would be of {len(rest)} sites, and all agreed to {least} at least "
            "(federation.min_sites). Start a new chain without it.",
            code="withdraw.too-few",
            key="federation.min_sites",
        )
    form = reply_form(job)
    question = Question(ASK_PART, Release(chain.id, secrets.token_hex(8), release), job.digest(), survivors=rest)
    total = kept.parts[TOTAL][VECTOR].view(np.uint64) + _part_of(site, question, transport, form.layout(release).size)
    return Total(release, SecureRecord(sites=rest), form.unpack(release, total), total)


def _part_of(site: str, question: Question, transport: Transport, size: int) -> np.ndarray:
    """Return the negated vector (size,) that a site sends to be taken out."""
    answers: Mapping[str, Answer] = {}
    if site in transport.sites(SECURE):
        answers = dict(transport.ask(SECURE, encode_question(question), [site], lambda: False))
    answer = answers.get(site, WireError("it is not connected, or did not answer", code="wire.refused"))
    try:
        if isinstance(answer, WireError):
            raise answer
        part = decode_answer(answer, site)
        if not isinstance(part, Part) or part.vector.shape != (size,):
            raise WireError("the answer is not its part of the total", code="wire.form", key="vector")
        return part.vector
    except WireError as e:
        raise FedMRError(
            f"{site} does not take its part out of the secure total: {e}. A person there allows it with "
            f"`fedmr-med site withdraw {question.release.chain}`.",
            code="withdraw.no-vector",
        ) from e
