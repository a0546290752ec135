"""What left the hospitals, and what that can reveal."""

from fedmr_med.privacy.explain import UPDATE_SPEAKS, privacy_costs
from fedmr_med.report.elements import Section, bullets, join, paragraph
from fedmr_med.report.pages._run import final, history, sites
from fedmr_med.report.sources import ChainRun


def page(run: ChainRun) -> Section:
    """Return in sentences what was sent, and the sentence that no policy changes."""
    past = history(run)
    shared = sorted({s for r in past.rounds for s, part in r.sites.items() if part.shared_classes})
    opted = sorted(site for site in sites(run) if site not in shared)
    lines = [f"Class prototypes (sum of features and number of images of a class) left {_names(shared)}."]
    secure = any(record.secure for record in past.rounds)
    if secure:
        lines = [
            "Class prototypes and scores were added up so that the server saw their total alone (secure sum). Which "
            "hospital shared what, nobody can tell."
        ]
    elif opted and past.rounds:
        lines.append(f"{_names(opted)} sent no class prototypes.")
    chosen = final(run)
    if chosen and not secure:
        detailed = sorted(chosen.pooled_sites)
        scalar = sorted(chosen.sites.keys() - set(detailed))
        lines.append(f"Confusion matrix and score histograms of test images left {_names(detailed)}.")
        lines += [f"Accuracies alone left {_names(scalar)}."] if scalar else []
        lines += [f"No score left {_names(sorted(chosen.held_back))}."] if chosen.held_back else []
    if past.head and not secure:
        lines.append(f"Class statistics for the closed-form head left {_names(sorted(past.head.sites))}.")
    lines += privacy_costs(past)
    never = paragraph("No image, no path of a file and no patient's name leaves a hospital.")
    return Section("privacy", "Privacy", join([bullets([*lines, UPDATE_SPEAKS]), never]))


def _names(sites: list[str]) -> str:
    return ", ".join(sites) or "no hospital"
