"""Guides that are followed from top to bottom: files written, commands and queries run in the order of the page."""

import doctest
import pkgutil
import re
import shutil
import sqlite3

import pandas as pd
import pytest

from guides import ROOT, run_command
from shared_data import shared_data
from test_docs import FENCE, commands, squeezed
from testbed.entries.functions import KNOWN_ARGUMENTS
from testbed.store.schema import VIEWS

DOCS = ROOT / "docs"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def tables(text):
    """The rows of all tables of a page, each as its cells."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def follow(text, folder, monkeypatch):
    """Do what a page does, block by block. Returns how many commands, examples and queries were run."""
    monkeypatch.chdir(folder)
    names, done = {}, 0
    for language, title, more, content in FENCE.findall(text):
        if title:
            path = folder / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((path.read_text() + "\n\n" if more else "") + content)
        elif language == "console":
            for command, expected in commands(content):
                check_command(command, expected, folder, monkeypatch)
                done += 1
        elif language == "pycon":
            check_examples(content, names)
            done += 1
        elif language == "sql":
            assert query(folder, content), f"no rows:\n{content}"
            done += 1
    return done


def check_command(command, expected, folder, monkeypatch):
    """Every line that is shown is printed; a command that shows an error fails, any other succeeds."""
    printed, exit_code = run_command(command, folder, monkeypatch)
    fails = any(line.startswith("Error:") for line in expected)
    assert (exit_code != 0) == fails, f"{command}\n{printed}"
    lines = [squeezed(line) for line in printed.splitlines()]
    for line in expected:
        assert any(squeezed(line) in printed_line for printed_line in lines), f"{command}\nexpected: {line}\n{printed}"


def check_examples(content, names):
    """`names` carries what earlier examples of the page have defined."""
    test = doctest.DocTestParser().get_doctest(content, names, "page", "page", 0)
    told = []
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    with pd.option_context("display.width", 160, "display.max_columns", None):
        result = doctest.DocTestRunner(optionflags=options).run(test, out=told.append, clear_globs=False)
    names.update(test.globs)
    assert result.failed == 0, "".join(told)


def query(folder, sql):
    connection = sqlite3.connect(folder / "results" / "results.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


# ---- finding results -------------------------------------------------------------------------------------

PUBLISHED = "## Published results of the ImageNet testbed"


def test_finding_results_shows_what_really_happens(tmp_path, monkeypatch):
    text, _, _ = page("finding-results.md").partition(PUBLISHED)
    assert follow(text, tmp_path, monkeypatch) > 15
    queries = [content for language, _, _, content in FENCE.findall(text) if language == "sql"]
    assert [row[0] for row in query(tmp_path, queries[0])] == ["digits_forest", "digits_linear", "digits_mlp"]
    assert query(tmp_path, queries[1]) == [("digits_mlp", "digits.inverted", 1)]


def test_finding_results_shows_the_published_number(tmp_path, monkeypatch):
    for name in ("robustness_top1s.csv", "model_types.csv"):
        shutil.copy(shared_data("testbed", name), tmp_path / name)
    _, found, text = page("finding-results.md").partition(PUBLISHED)
    assert found
    assert follow(text, tmp_path, monkeypatch) == 2


@pytest.mark.parametrize("view", VIEWS)
def test_finding_results_lists_the_columns_of_every_view(view, store):
    rows = {row[0].strip("`"): row[2] for row in tables(page("finding-results.md")) if len(row) == 3}
    told = re.findall(r"`(\w+)`", rows[view].replace("those of `results`, and", rows["results"] + ","))
    with store.engine.connect() as connection:
        real = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({view})")]
    assert told == real


# ---- adding things ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("guide", ["adding-a-metric.md", "adding-an-explainer.md"])
def test_guide_can_be_followed(guide, tmp_path, monkeypatch):
    assert follow(page(guide), tmp_path, monkeypatch) >= 5


FIRST_HOUR = page("first-hour.md").split("\n## ")[1:]
FIRST_FIGURES = ("mine-curves.png", "rotated.png", "shape_bias.png", "label_free-estimates.png", "explorer.html")


@pytest.mark.parametrize(("section", "figure"), list(zip(FIRST_HOUR, FIRST_FIGURES, strict=True)), ids=FIRST_FIGURES)
def test_first_hour_goes_from_the_first_command_to_a_figure(section, figure, tmp_path, monkeypatch):
    (tmp_path / "plotting").symlink_to(ROOT / "plotting")
    assert follow(section, tmp_path, monkeypatch) >= 3
    assert (tmp_path / "figures" / figure).stat().st_size > 1000


def test_guide_lists_the_arguments_of_a_metric():
    told = [row[0].strip("`") for row in tables(page("adding-a-metric.md"))]
    start = told.index("argument") + 1
    assert tuple(told[start : start + len(KNOWN_ARGUMENTS["metrics_fn"])]) == KNOWN_ARGUMENTS["metrics_fn"]


# ---- the glossary ----------------------------------------------------------------------------------------

WORDS = """
    aggregate, backbone, batch, broker, bundle, chunk, claim, control, dataset, device, ensemble, estimate,
    evaluation, eval setting, extras, fingerprint, group, images_from, imported, kind, label-free estimate, logits,
    logits_from, meta set, metric, model, noise key, number, observer, outputs, pair, perturbation, plan,
    preparation, preparing process, probe, probe model, provenance, published, recording, reference, rows, run,
    samples, shard, source, superseded, tag, task, transform, variant, version, work, worker
"""


def glossary():
    """(word, meaning, file) of every entry."""
    return [(word.strip("*"), *rest) for word, *rest in tables(page("glossary.md")) if word.startswith("**")]


def test_glossary_explains_every_word_once_in_alphabetical_order():
    words = [word for word, _, _ in glossary()]
    assert sorted(words) == sorted(word.strip() for word in WORDS.split(","))
    assert words == sorted(words)


@pytest.mark.parametrize(("word", "meaning", "file"), glossary())
def test_glossary_has_one_or_two_sentences_and_a_file(word, meaning, file):
    assert (ROOT / "src" / "testbed" / file.strip("`")).is_file()
    assert meaning.count(". ") < 2, f"{word}: expected one or two sentences"


# ---- what pages name -------------------------------------------------------------------------------------

PATHS = re.compile(r"`((?:src/testbed|tests|plotting|registry|benchmarks|docs)/[\w./-]+\.(?:py|md|csv|json))`")
MODULES = re.compile(r"(?<![\w-])(testbed(?:\.[a-z_0-9]+)+)\b")  # no file name such as imagenet-testbed.md
PAGES = sorted(path for path in [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_files_that_exist(path):
    text = path.read_text(encoding="utf-8")
    missing = [name for name in PATHS.findall(text) if not (ROOT / name).exists()]
    links = re.findall(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]+)?\)", text)
    missing += [link for link in links if not (path.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_name_modules_that_exist(path):
    """`testbed.explain.clusters`, `testbed.metrics.aggregates.Mean`: each address can be imported as it is written."""
    for name in sorted(set(MODULES.findall(path.read_text(encoding="utf-8")))):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError) as error:
            pytest.fail(f"{name}: {error}")


def test_menu_of_the_site_has_every_page():
    """`make site` builds the menu of mkdocs.yml; a page that is not in it would not be found."""
    menu = re.findall(r"^ +- .+: ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(menu) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
