"""The report of the demo."""

from collections.abc import Sequence

from markupsafe import Markup

from fedmr_med.data.flamby_isic import DIAGNOSES
from fedmr_med.report.document import Part, page_of
from fedmr_med.report.elements import (
    NONE,
    Cell,
    Section,
    cards,
    figure,
    figures_side_by_side,
    join,
    number,
    paragraph,
    shaded,
    table,
)
from fedmr_med.report.pages.comparison import seeds_chart
from fedmr_med.runner.showcase.plan import CLASSES, HOSPITALS, OPT_OUT, OPTED_OUT
from fedmr_med.runner.showcase.work import Row

COLUMNS = ("training", "balanced accuracy", "with head", "classes held", "classes lacked")
CAPTION = (
    "On the test pictures of all hospitals: balanced accuracy, mean of the last five rounds; the last model with a "
    "closed-form head; sensitivity of the last model for the classes that a hospital holds or lacks."
)


def page(rows: Sequence[Row], panels: Sequence[Markup], hospital: str, seeds: int) -> str:
    """Return the page as HTML, with the pictures of the models that a hospital ends with."""
    sections = (
        Section("claim", "What happens to the classes that a hospital lacks", _claim(rows, panels, hospital)),
        Section("table", "Four ways to train", _table(rows, seeds)),
        Section("classes", "Class by class", _classes(rows)),
        Section("hospitals", "Who holds what", _hospitals()),
        Section("next", "What to do next", _NEXT),
    )
    return page_of([Part("demo", "FedMR on generated pictures", True, sections)])


def cells(row: Row) -> list[str]:
    """Return a row of figures as text, in the order of :data:`COLUMNS`."""
    head = row.head.text(2) if row.head else NONE
    return [row.label, row.score.text(2), head, row.held.text(2), row.missing.text(2)]


def _claim(rows: Sequence[Row], panels: Sequence[Markup], hospital: str) -> Markup:
    caption = (
        f"The model that the hospital {hospital} ends with. Each dot is a test picture. It lies at the corner of the "
        "class that the model is sure of, or between corners. Blue: the classes that the hospital holds; orange: those "
        "that it lacks."
    )
    return join([
        cards((row.label, row.score.text(2)) for row in rows),
        paragraph("Balanced accuracy on the test pictures of all hospitals, mean of the last five rounds."),
        figures_side_by_side((figure(panel, "") for panel in panels), small=True),
        paragraph(caption),
    ])  # fmt: skip


def _table(rows: Sequence[Row], seeds: int) -> Markup:
    series = {row.label: row.curves for row in rows}
    spread = f" Mean ± standard deviation over {seeds} seeds." if seeds > 1 else ""
    chart = seeds_chart("Balanced accuracy by round", series, ylabel="balanced accuracy")
    return join([paragraph(CAPTION + spread), table("The figures", COLUMNS, [cells(row) for row in rows]), chart])


def _classes(rows: Sequence[Row]) -> Markup:
    names = "; ".join(f"{name} {DIAGNOSES[name]}" for name in CLASSES)
    cells = [(row.label, *(shaded(number(recall, 2), "hit", recall or 0) for recall in row.recall)) for row in rows]
    title = "Sensitivity of the last model for each class; of each hospital alone the mean over the hospitals"
    return join([table(title, ("training", *CLASSES), cells, matrix=True), paragraph(f"{names}.")])


def _hospitals() -> Markup:
    held = [
        (name, *(Cell("holds", "hit3") if label in classes else NONE for label in CLASSES))
        for name, classes in HOSPITALS.items()
    ]
    said = (
        f'In "{OPT_OUT}" the hospital {OPTED_OUT} sends no class sums. It still receives the prototypes of the others.'
    )
    return join([
        table("Classes by hospital", ("hospital", *CLASSES), held, matrix=True),
        paragraph(said),
    ])  # fmt: skip


_NEXT = Markup(
    "<p>Let the model answer for the sample pictures beside this page:</p>"
    "<pre>fedmr-med predict best_model.pt images -o predictions.csv --page predictions.html</pre>"
    "<p>Describe a folder of images of your own:</p><pre>fedmr-med data manifest FOLDER</pre>"
    "<p>Run six hospitals in NVIDIA FLARE's simulator, in a clone of the repository:</p><pre>make run</pre>"
)
