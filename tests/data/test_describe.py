"""The class x site table of the demo, of FLamby's folder and of a folder of sites."""

from pathlib import Path

from rich.console import Console

from fedmr_med.data.demo import class_counts_of
from fedmr_med.data.describe import Description, describe
from fedmr_med.data.flamby_isic import HOSPITALS, TEST_COUNTS, TRAIN_COUNTS
from fedmr_med.data.split_sites import split_sites
from fedmr_med.report.class_counts import site_tables
from fedmr_med.sites import DemoSource
from tests.helpers.errors import raises
from tests.helpers.pictures import write_flamby_folder, write_manifest_folder


def printed(description: Description) -> str:
    console = Console(width=100, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(site_tables(description))
    return console.export_text()


def test_the_demo() -> None:
    description = describe("demo")
    assert tuple(site.name for site in description.sites) == HOSPITALS
    for center, site in enumerate(description.sites):
        assert (site.train.tolist(), site.test.tolist()) == class_counts_of(DemoSource(source="demo", center=center))
    text = printed(description)
    assert "generated pictures (demo)" in text
    assert all(name in text for name in HOSPITALS)


def test_the_real_split(shared_data: Path) -> None:
    description = describe(shared_data / "fed_isic2019")
    assert [site.train.tolist() for site in description.sites] == [list(row) for row in TRAIN_COUNTS]
    assert [site.test.tolist() for site in description.sites] == [list(row) for row in TEST_COUNTS]
    leaked = {site.name: site.leaked for site in description.sites}
    assert leaked["bcn"] is None
    assert leaked["vidir-modern"] is not None and leaked["vidir-modern"] > 100
    assert "18597 images" in printed(description)


def test_a_folder_of_sites_of_all_kinds(tmp_path: Path) -> None:
    write_flamby_folder(tmp_path / "isic")
    split_sites(tmp_path / "isic", tmp_path / "sites")
    (tmp_path / "sites/msk/site.yaml").write_text("data: {source: demo, center: 4}\n")
    (tmp_path / "sites/bcn/site.yaml").write_text(f"data: {{source: flamby_isic, center: 0, root: {tmp_path}/isic}}\n")
    description = describe(tmp_path / "sites")
    by_name = {site.name: site for site in description.sites}
    assert set(by_name) == set(HOSPITALS)
    whole = {site.name: site for site in describe(tmp_path / "isic").sites}
    for name in ("bcn", "rosendahl"):
        assert by_name[name].train.tolist() == whole[name].train.tolist()
    assert by_name["msk"].is_demo
    assert by_name["msk"].train.tolist() == class_counts_of(DemoSource(source="demo", center=4))[0]


def test_a_demo_site_with_classes_of_its_own_holds_them_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/site.yaml").write_text("data: {source: demo, center: 0, classes: [NV], images: 30}\n")
    (site,) = describe(tmp_path, class_names=("MEL", "NV")).sites
    assert (site.train.tolist(), site.test.tolist()) == ([0, 30], [0, 10])
    for source in ("demo, center: 0", f"flamby_isic, center: 0, root: {tmp_path}"):
        (tmp_path / "a/site.yaml").write_text(f"data: {{source: {source}}}\n")
        with raises("data.class-names", "task.class_names"):
            describe(tmp_path, class_names=("MEL", "NV"))


def test_manifests_with_classes_of_their_own(tmp_path: Path) -> None:
    root = tmp_path / "sites/a"
    rows = [("x.png", "red", "train", "p1"), ("y.png", "blue", "test", "p1"), ("z.png", "1", "test", "p2")]
    write_manifest_folder(root, list(rows), pictures=False)
    (root / "site.yaml").write_text("data: {source: manifest, root: .}\n")
    (site,) = describe(tmp_path / "sites", class_names=("red", "blue")).sites
    assert (site.train.tolist(), site.test.tolist(), site.leaked) == ([1, 0], [0, 2], 1)
    with raises("data.row"):
        describe(tmp_path / "sites")


def test_nothing_to_describe(tmp_path: Path) -> None:
    with raises("data.missing"):
        describe(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/site.yaml").write_text("data: {source: demo, center: 4, colour: red}\n")
    with raises("config.unknown-key", "data.demo.colour"):
        describe(tmp_path)
    (tmp_path / "a/site.yaml").write_text("data: {source: benchmark, client: 0, clients: 2}\n")
    with raises("config.conflict", "data.source"):
        describe(tmp_path)
