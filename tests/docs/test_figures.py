"""Figures of the pages come from the kept results: `make figures` writes them, and none is repeated by hand."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

from benchmarks.kept import RESULTS as KEPT
from benchmarks.report.figures import DRAIN, FIGURES, KILL, Write
from benchmarks.report.pages import MARK, ROOT, pages, stale, written
from benchmarks.report.plots import CHINESE, PLOTS, Bar, bars
from benchmarks.report.results import NotMeasured, Results
from benchmarks.report.tables import TABLES, described

PAST: Final = ("CHANGELOG.md", "docs/decisions")
"""Pages with figures of the past."""


def test_every_page_and_plot_has_the_figures_of_the_results() -> None:
    found = [str(path.relative_to(ROOT)) for path in stale(Results())]

    assert found == [], "run `make figures`"


def test_a_large_figure_is_not_repeated_by_hand() -> None:
    """A rate of ten thousand and more is found by its digits. A smaller one may stand for something else."""
    results = Results()
    rates = {text for write in FIGURES.values() if re.fullmatch(r"\d{2,},\d{3}", text := _text_of(write, results))}
    rates -= {"100,000", "200,000"}  # round numbers
    unmarked = {
        f"{page.relative_to(ROOT)}: {rate}"
        for page in pages()
        if not str(page.relative_to(ROOT)).startswith(PAST)
        for rate in rates
        if re.search(rf"(?<![\d,]){rate}(?![\d,])", MARK.sub("", page.read_text()))
    }

    assert len(rates) >= 8
    assert unmarked == set()


def test_every_figure_is_on_a_page() -> None:
    marked = {mark["name"].removeprefix("plot.") for page in pages() for mark in MARK.finditer(page.read_text())}

    assert marked == {*FIGURES, *TABLES, *PLOTS}


def _text_of(write: Write, results: Results) -> str:
    try:
        return write(results)
    except NotMeasured:
        return ""


def test_the_words_around_the_figures_are_true() -> None:
    """Pages claim: none lost, none early, the worst of two kills, and medians of two or three samples."""
    results = Results()

    assert results.figure("field", "kill -9: lost", "duly").value == 0
    assert results.figure("field", "delayed, the earliest", "duly").value > 0
    assert len(results.figure("field", KILL, "duly").samples) == 2
    assert len(results.figure("field", DRAIN, "duly").samples) == 3


# --- Suites that are not kept yet -----------------------------------------------------------------------------


def result(question: str, samples: list[float], **more: Any) -> dict[str, Any]:
    usual = {"value": samples[0], "unit": "ms", "bar": None, "holds": True, "beside": {}, "higher_is_better": True}
    return {"question": question, "samples": samples, **usual, **more}


@pytest.fixture
def all_suites(tmp_path: Path) -> Results:
    """Copy the kept results, and add a small field and a small growth."""
    for path in KEPT.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    side = {"server": "valkey", "guarantee": "at least once", "keeps": "in memory", "settings": "none"}
    drain = "drain, one worker process"
    field = {
        "peers": {"slow<&>peer": {"slow<&>peer": "1.2"}},
        "sides": {"duly": side, "slow<&>peer": side},
        "results": [
            result(drain, [110_000.0, 100_000.0, 105_000.0], party="duly"),
            result(drain, [900.0, 500.0, 1100.0], party="slow<&>peer"),
            result("latency, idle, p50", [0.4], party="duly"),
        ],
    }
    growth = "claim and release 100 with {} waiting, server CPU"
    scale = {
        "results": [
            result(growth.format(step), [value], beside={"waiting": step, "bytes a message": 280.5})
            for step, value in ((1000, 310.0), (10_000_000, 340.0))
        ]
    }
    (tmp_path / "field.json").write_text(json.dumps({"questions": {"field_rates": field}}))
    (tmp_path / "scale.json").write_text(json.dumps({"questions": {"scale_growth": scale}}))
    return Results(tmp_path)


def test_a_cell_has_the_range_of_its_samples_and_names_noise_and_single_samples(all_suites: Results) -> None:
    rates, latency = TABLES["table.rates"](all_suites), TABLES["table.latency"](all_suites)

    assert "| 110,000 (100,000 to 110,000) |" in rates
    assert "| 900 (500 to 1,100) ~ |" in rates
    assert "| duly | 0.40 ¹ |" in latency
    assert "slow" not in latency, "it has no figure there"


def test_the_settings_and_the_guarantee_of_each_party_are_named(all_suites: Results) -> None:
    assert "| slow<&>peer 1.2 | valkey | at least once | in memory | none |" in TABLES["table.guarantees"](all_suites)


def test_columns_in_which_another_queue_is_better_are_listed(tmp_path: Path) -> None:
    """Peers with another guarantee or another server do not count."""
    side = {"server": "valkey", "guarantee": "at least once", "keeps": "in memory", "settings": "none"}
    sides = {
        "duly": side,
        "peer": side,
        "lossy": {**side, "guarantee": "at most once"},
        "disk": {**side, "server": "x"},
    }
    figures = {"send, one after another": (90.0, 80.0, 99.0, 99.0), "drain, one worker process": (5.0, 4.0, 9.0, 9.0)}
    costs = {"server CPU of a send": (42.0, 18.0, 1.0, 1.0), "worker CPU of a message": (5.0, 6.0, 1.0, 1.0)}
    results = [
        result(question, [value], party=party, higher_is_better=question in figures)
        for question, values in (figures | costs).items()
        for party, value in zip(sides, values, strict=True)
    ]
    part = {"sides": sides, "results": results}
    (tmp_path / "field.json").write_text(json.dumps({"questions": {"field_rates": part}}))

    rows = TABLES["table.behind"](Results(tmp_path)).splitlines()[2:]

    assert rows == ["| server CPU of a send, ms | 42 ¹ | peer: 18.0 ¹ |"]


def test_a_queue_that_delivers_early_or_shows_the_same_figure_is_not_listed_as_better(tmp_path: Path) -> None:
    side = {"server": "valkey", "guarantee": "at least once", "keeps": "in memory", "settings": "none"}
    figures = {
        "delayed over 5 s, late, p50": (0.3, -100.0, 0.2),
        "delayed, the earliest": (0.1, -300.0, 0.1),
        "latency, idle, p50": (0.331, 0.5, 0.329),
        "latency, idle, p99": (0.9, 0.5, 1.0),
    }
    results = [
        result(question, [value], party=party, higher_is_better=False)
        for question, values in figures.items()
        for party, value in zip(("duly", "early", "same"), values, strict=True)
    ]
    part = {"sides": {"duly": side, "early": side, "same": side}, "results": results}
    (tmp_path / "field.json").write_text(json.dumps({"questions": {"field_delays": part}}))

    rows = TABLES["table.behind"](Results(tmp_path)).splitlines()[2:]

    assert rows == [
        "| latency, idle, p99, ms | 0.90 ¹ | early: 0.50 ¹ |",
        "| delayed over 5 s, late, p50, ms | 0.30 ¹ | same: 0.20 ¹ |",
    ]


def test_growth_has_a_row_for_each_step(all_suites: Results) -> None:
    heads, _, *rows = TABLES["table.growth"](all_suites).splitlines()

    assert "| 10,000,000 | 340 ¹ | 280 |" in rows
    assert "server CPU of a claim and a release of 100, us" in heads


def test_missed_targets_are_described_in_words() -> None:
    results = Results()
    found = {
        each.question
        for suite in ("engine", "topic", "field", "scale")
        for each in results.of(suite)
        if each.bar is not None
    }

    assert len(found) > 20
    assert [question for question in found if re.search(r" / |, of |: Duly", described(question))] == []
    assert described("latency, idle, p50: Duly, of the best peer on Valkey (taskiq)") == (
        "time from `send` to the handler of an idle worker, p50, relative to taskiq, the best peer on Valkey"
    )
    for row in TABLES["table.missed"](results).splitlines()[2:]:
        assert re.search(r"\| [\d.,]+[^|]* \| at (?:most|least) [\d.,]+[^|]* \|$", row)
        assert not re.search(r"\d (?:ratio|x) \|", row)


def test_plots_have_a_text_in_each_language(all_suites: Results) -> None:
    files = {str(path.relative_to(ROOT)): text for path, text in written(all_suites)}

    assert set(CHINESE) == set(PLOTS)
    for name in ("scale-growth", "field-drain"):
        assert f"![{PLOTS[name][0]}](images/{name}.svg)" in files["docs/speed.md"]
        assert f"![{CHINESE[name]}](../images/{name}.svg)" in files["docs/zh/speed.md"]


def test_a_page_gets_tables_and_plots_when_their_suite_is_kept(all_suites: Results) -> None:
    files = {str(path.relative_to(ROOT)): text for path, text in written(all_suites)}

    assert "(images/field-drain.svg)" in files["docs/speed.md"]
    assert "Not measured yet." in files["docs/speed.md"], "the field has no kills"
    assert {"docs/images/field-drain.svg", "docs/images/scale-growth.svg"} <= set(files)
    assert "docs/images/field-late.svg" not in files


def test_plots_are_well_formed_and_readable_in_dark_mode(all_suites: Results) -> None:
    drawn = {path.name: text for path, text in written(all_suites) if path.suffix == ".svg"}

    assert len(drawn) == 5
    for text in drawn.values():
        ET.fromstring(text)
        assert "prefers-color-scheme: dark" in text
        assert "currentColor" in text
        assert text.count("http") == 1  # the name of the format


def test_a_plot_shows_that_a_queue_delivers_early_instead_of_a_bar(all_suites: Results) -> None:
    (duly,) = [each for each in all_suites.of("field") if each.question == "latency, idle, p50"]
    early = replace(duly, party="hasty", value=-90.0, samples=[-400.0, 200.0])
    drawn = bars("late", "ms", [Bar("hasty", early), Bar("duly", duly)], higher_is_better=False)

    assert drawn.count("<rect class=") == 2, "the paper, and the bar of duly"
    assert "delivers some early" in drawn
    assert drawn.index(">duly<") < drawn.index(">hasty<")
    assert 'class="spread"' not in drawn
