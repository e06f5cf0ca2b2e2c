import re
from dataclasses import replace
from pathlib import Path

import pytest

import offramp_bench.page
from lab.tests.page.made_up import CLAIMS, task, write
from offramp.report._palette import PALETTE
from offramp_bench.page import Results, read_results, write_page
from offramp_bench.page.lines import MOST, choose_lines
from offramp_bench.page.panels import draw_track
from offramp_bench.page.reading import parse_task
from offramp_bench.tracks.yardstick import FIGURES
from tests.report.test_page import Page

HOSTILE = "<script>alert(1)</script> & \"'$5\x00"


def written(folder: Path) -> str:
    return write_page(read_results(folder), folder / "deep" / "page.html").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    return Page(page).text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    tasks = task(means={"linear exits: entropy": 0.82}), task("cifar10", seeds=1)
    return written(write(tmp_path_factory.mktemp("page"), *tasks, claims=CLAIMS))


def test_where_the_default_is_behind_comes_before_the_pictures(page: str) -> None:
    text = text_of(page)
    assert text.index("The default is behind another contestant beyond the interval on 1 of 4") < text.index(
        "relative cost"
    )
    better = '"entropy" is better in cost at 0 points lost, by 0.020 of the cost (0.015 to 0.025)'
    assert f"behind 1 of 2 contestants. Most clearly, {better}." in text


def test_each_track_has_a_picture_with_a_legend(page: str) -> None:
    parsed = Page(page)
    # Two tracks on two tasks; three and four lines (one of contestants that share their exits).
    assert parsed.tags.count("figure") == 2
    assert parsed.tags.count("svg") == 2 * 2 + 3 + 4
    assert "default: threshold" in parsed.text
    open_track = page[page.index('<section id="open">') :]
    assert "Not measured yet." in open_track[: open_track.index("</section>")]


def test_tables_hold_figures_and_leads_in_words(page: str) -> None:
    text = text_of(page)
    for shown in ("▼ behind -0.020", "▲ ahead +3.00", "(+2.50 to +3.50)", "1.23", "1,200", "learning rate: 0.003"):
        assert shown in text
    rows = re.findall(r'<tr[^>]*><th scope="row">([^<]*)', page)
    assert rows[:3] == ["threshold (default)", "entropy", "learned gates"]  # cifar10
    assert rows[3:6] == ["entropy", "threshold (default)", "learned gates"]  # nci1, the best first


def test_notes_name_missing_tasks_and_few_seeds(page: str) -> None:
    text = text_of(page)
    assert "Not measured yet, 9 of 11 tasks: CIFAR-100, EfficientNet-Lite0;" in text
    assert "CIFAR-10, ResNet-56 (1)." in text


def test_claims(page: str, tmp_path: Path) -> None:
    text = text_of(page)
    for shown in (
        "1. Joint training: does not hold",
        "It is behind on nci1.",
        "-0.50",
        "against",
        "counts as level up to",
    ):
        assert shown in text
    assert "not judged yet" in written(write(tmp_path))


def test_a_figure_that_is_left_out(tmp_path: Path) -> None:
    content = task()
    for row in content["contestants"].values():
        del row["figures"][FIGURES[3]]
    for leads in content["leads"].values():
        for found in leads.values():
            del found[FIGURES[3]]
    assert f"Not shown, because one contestant's first exit already costs more: {FIGURES[3]}." in text_of(
        written(write(tmp_path, content))
    )


def test_a_default_without_rivals_and_without_a_curve(tmp_path: Path) -> None:
    content = task()
    content["leads"] = {"ladder": {}}
    content["contestants"]["ladder"]["curve"] = []
    assert "level on 1 (nci1)" in text_of(written(write(tmp_path, content)))


def test_names_of_others_are_text_and_nothing_else(tmp_path: Path) -> None:
    claims = [{**CLAIMS[0], "name": HOSTILE, "claim": HOSTILE, "why": HOSTILE, "verdict": HOSTILE}]
    content = task(HOSTILE, means={HOSTILE: 0.9}) | {"about": HOSTILE}
    content["contestants"][HOSTILE]["settings"] = {HOSTILE: HOSTILE}
    page = written(write(tmp_path, content, claims=claims))
    assert "<script>" not in page
    assert "\x00" not in page
    assert HOSTILE.replace("\x00", "\N{REPLACEMENT CHARACTER}") in Page(page).text


def test_the_page_needs_nothing_from_outside(page: str) -> None:
    parsed = Page(page)
    assert not {"script", "link", "iframe", "object", "img"} & set(parsed.tags)
    for key, value in parsed.attributes:
        assert not key.startswith("on")
        if key in ("src", "href", "xlink:href"):
            assert value.startswith("#")
        assert "http" not in value
        assert key != "style" or not re.search(r"url\((?!#)", value)
    assert "@import" not in page


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    attributes = Page(page).attributes
    ids = [value for key, value in attributes if key == "id"]
    assert len(set(ids)) == len(ids)
    assert {value[1:] for key, value in attributes if key == "href"} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", page)) <= set(ids)


def test_colours_follow_the_reader(page: str) -> None:
    style, body = page.split("</style>", 1)
    assert not re.search("#[0-9a-f]{6}", re.sub(r'href="[^"]*"|url\([^)]*\)', "", body))
    assert "prefers-color-scheme: dark" in style
    assert set(re.findall(r"var\(--([\w-]+)\)", page)) <= {*PALETTE, "ground"}


def test_lines_are_few_and_differ_without_colour() -> None:
    parsed = parse_task(task(means={f"rival {place}": 0.7 + 0.01 * place for place in range(9)}))
    lines = choose_lines([(parsed, parsed.footings[1])])
    assert len(lines) == MOST
    assert [line.name for line in lines[:4]] == ["ladder", "JEI-DNN", "linear", "ZTW"]
    assert len({(line.dashes, line.marker) for line in lines}) == MOST
    assert len({line.marker for line in lines}) == MOST


def test_lines_of_more_tasks_come_before_stronger_ones_of_one_task() -> None:
    both = task(means={"everywhere": 0.7}), task("cifar10", means={"everywhere": 0.7, "on one task": 0.9})
    footings = [(parsed, parsed.footings[1]) for parsed in map(parse_task, both)]
    names = [line.name for line in choose_lines(footings)]
    assert names.index("everywhere") < names.index("on one task")


def test_each_training_has_one_line_unless_policies_are_compared() -> None:
    parsed = parse_task(task())
    for track, drawn in (("policy", True), ("exits", False), ("open", False)):
        footing = replace(parsed.footings[1], track=track)
        names = [line.name for line in choose_lines([(parsed, footing)])]
        assert ("ladder, optimal stopping" in names) == drawn


def test_a_colour_means_the_same_in_every_picture() -> None:
    parsed = parse_task(task())
    tracks = (choose_lines([(parsed, footing)]) for footing in parsed.footings[:2])
    policies, exits = ({line.name: line.colour for line in lines} for lines in tracks)
    assert policies["linear exits: threshold"] == exits["ladder"] == PALETTE["blue"].light
    assert policies["linear exits: learned gates"] == exits["JEI-DNN"] == PALETTE["purple"].light
    assert exits["linear"] not in policies.values()


def test_a_page_without_tasks(tmp_path: Path) -> None:
    text = text_of(write_page(Results((), None), tmp_path / "page.html").read_text(encoding="utf-8"))
    assert text.count("Not measured yet.") == 6


def test_matplotlib_is_imported_by_the_canvas_alone() -> None:
    for file in Path(offramp_bench.page.__path__[0]).glob("*.py"):
        assert not re.search(r"^\s*(import|from) matplotlib", file.read_text(), re.MULTILINE), file.name


def test_the_grid_of_a_track_has_no_empty_axes(tmp_path: Path) -> None:
    results = read_results(write(tmp_path, *(task(name) for name in ("cifar10", "nci1", "svhn", "clinc150"))))
    figure = draw_track(next(iter(results.footings("exits").values())))
    assert [axes.axison for axes in figure.axes] == [True] * 4 + [False] * 2
