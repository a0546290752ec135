"""The report of the demo."""

from collections.abc import Sequence

from markupsafe import Markup

from fedmr_med.report.document import Part, page_of
from fedmr_med.report.elements import NONE, Section, bullets, cards, figure, join, paragraph, table
from fedmr_med.report.pages.comparison import seeds_chart
from fedmr_med.report.svg import heat_map
from fedmr_med.runner.showcase.plan import CLASSES, HOSPITALS, OPT_OUT, OPTED_OUT
from fedmr_med.runner.showcase.work import Row

COLUMNS = ("training", "balanced accuracy", "with head", "classes held", "classes lacked")
CAPTION = (
    "On the test pictures of all hospitals: balanced accuracy, mean of the last five rounds; the last model with a "
    "closed-form head; sensitivity of the last model for the classes that a hospital holds or lacks."
)


def page(rows: Sequence[Row], picture: Markup, hospital: str, seeds: int) -> str:
    """Return the page as HTML, with the picture of the model that a hospital ends with."""
    sections = (
        Section("claim", "What happens to the classes that a hospital lacks", _claim(rows, picture, hospital)),
        Section("table", "Four ways to train", _table(rows, seeds)),
        Section("classes", "Class by class", _classes(rows)),
        Section("hospitals", "Who holds what", _hospitals()),
        Section("next", "What to do next", bullets(_NEXT)),
    )
    return page_of([Part("demo", "FedMR on generated pictures", True, sections)])


def cells(row: Row) -> list[str]:
    """Return a row of figures as text, in the order of :data:`COLUMNS`."""
    head = row.head.text(2) if row.head else NONE
    return [row.label, row.score.text(2), head, row.held.text(2), row.missing.text(2)]


def _claim(rows: Sequence[Row], picture: Markup, hospital: str) -> Markup:
    caption = (
        f"The model that the hospital {hospital} ends with. Each dot is a test picture. It lies at the corner of the "
        "class that the model is sure of, or between corners. Blue: the classes that the hospital holds; orange: those "
        "that it lacks."
    )
    return join([
        cards((row.label, row.score.text(2)) for row in rows),
        paragraph("Balanced accuracy on the test pictures of all hospitals, mean of the last five rounds."),
        figure(picture, caption),
    ])  # fmt: skip


def _table(rows: Sequence[Row], seeds: int) -> Markup:
    series = {row.label: [[100 * value for value in curve] for curve in row.curves] for row in rows}
    spread = f" Mean ± standard deviation over {seeds} seeds." if seeds > 1 else ""
    chart = seeds_chart("Balanced accuracy by round", series, ylabel="balanced accuracy, %")
    return join([paragraph(CAPTION + spread), table("Figures", COLUMNS, [cells(row) for row in rows]), chart])


def _classes(rows: Sequence[Row]) -> Markup:
    title = "Sensitivity of the last model for each class"
    chart = heat_map(title, [row.label for row in rows], CLASSES, [row.recall for row in rows])
    return figure(chart, f"{title}. Of each hospital alone it is the mean over the hospitals.")


def _hospitals() -> Markup:
    held = [
        (name, *("holds" if label in classes else NONE for label in CLASSES)) for name, classes in HOSPITALS.items()
    ]
    shades = {
        (line, place): "shared" for line, row in enumerate(held) for place, cell in enumerate(row) if cell == "holds"
    }
    said = (
        f'In "{OPT_OUT}" the hospital {OPTED_OUT} sends no class sums. It still receives the prototypes of the others.'
    )
    return join([table("Classes by hospital", ("hospital", *CLASSES), held, classes=shades), paragraph(said)])


_NEXT = (
    "fedmr-med predict best_model.pt images -o predictions.csv: what the model says of the sample pictures beside this "
    "page.",
    "fedmr-med data manifest FOLDER: a table of your own images.",
    "make run: six hospitals in NVIDIA FLARE's simulator.",
)
