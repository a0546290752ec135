"""What the hospitals minimised."""

from fedmr_med.report.elements import Section, figure, figures_side_by_side, join, legend, number, table
from fedmr_med.report.pages._run import history, sites
from fedmr_med.report.sources import ChainRun
from fedmr_med.report.svg import lines


def page(run: ChainRun) -> Section | None:
    """Return each term of the local objective by round and hospital."""
    rounds = history(run).rounds
    terms = dict.fromkeys(term for record in rounds for part in record.sites.values() for term in part.terms)
    if not terms:
        return None
    pictures = []
    told = [site for site in sites(run) if any(site in r.sites and r.sites[site].terms for r in rounds)]
    for term in terms:
        series = {
            site: [(float(r.round), r.sites[site].terms[term]) for r in rounds
                   if site in r.sites and term in r.sites[site].terms]
            for site in told
        }  # fmt: skip
        title = f"Loss term: {term}"
        rows = [(site, *(number(dict(points).get(float(r.round))) for r in rounds)) for site, points in series.items()]
        values = table(title, ("hospital", *(f"round {r.round}" for r in rounds)), rows)
        pictures.append(figure(lines(title, series, xlabel="round", ylabel=term, width=420), title, values))
    return Section("losses", "Loss terms", join([legend(told), figures_side_by_side(pictures)]))
