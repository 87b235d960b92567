"""What cannot be used, is not comparable or is only partly there: told by name, and the rest is estimated."""

import json

import numpy as np
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from stored_results import add
from testbed.commands import autoeval
from testbed.store import schema
from testbed.store.estimates import estimates

CLASSES = 4
MODELS = ("first", "second", "third")


def outputs(name, number=0, signal=1.0, n=300):
    """Logits of a model's own, and targets and noise that all models share."""
    shared = np.random.default_rng(sum(map(ord, name)))
    targets = shared.integers(CLASSES, size=n)
    logits = shared.normal(size=(n, CLASSES))
    logits[np.arange(n), targets] += signal + 0.3 * number
    own = np.random.default_rng(1000 * number + sum(map(ord, name)))
    return (logits + own.normal(size=logits.shape) * 0.7).astype(np.float32), targets


def fill(store, name, signal=1.0, models=MODELS, n=300, features=False, recorded=None, **more):
    for number, model in enumerate(MODELS):
        if model in models:
            logits, targets = outputs(name, number, signal, n)
            extras = {"features": logits[:, :3].copy()} if features else {}
            if recorded is not None:
                extras["rotation"] = np.random.default_rng(0).normal(size=(n, 4, 4)).astype(np.float32)
            evaluation = add(store, model, name, logits=logits, targets=targets, extras=extras or None, **more)
            if recorded is not None:
                recall(store, evaluation, rotation_head={"sha256": recorded})


def recall(store, evaluation, **facts):
    """Add to the provenance of an evaluation."""
    table = schema.evaluations
    with store.writing() as connection:
        here = table.c.id == evaluation
        known = connection.execute(sa.select(table.c.provenance).where(here)).scalar_one()
        connection.execute(table.update().where(here).values(provenance={**known, **facts}))


@pytest.fixture
def filled(store):
    store.begin_run()
    fill(store, "clean", 2.5)
    for number in range(4):
        fill(store, f"fit-{number}", 0.4 * number + 0.2)
    fill(store, "noise-1", 1.6)
    fill(store, "noise-2", 0.7)
    fill(store, "blur-1", 1.1)
    return store


def ask(store, *words, style="json"):
    done = CliRunner().invoke(autoeval.main, [*map(str, words), "--db", store.engine.url.database, "--format", style])
    assert not done.exception or isinstance(done.exception, SystemExit), done.exc_info
    return done


def told(store, *words):
    done = ask(store, *words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(store, *words):
    done = ask(store, *words)
    assert done.exit_code != 0
    return done.stderr.strip().splitlines()[-1]


def methods(answer):
    return {e["method"] for e in answer["estimates"]}


FIRST = ("--models", "first", "--source", "clean")
ALL = ("--models", *MODELS, "--source", "clean")


# ---- one method or set ------------------------------------------------------------------------------------


def test_a_score_that_is_the_same_on_all_fit_sets_costs_only_itself(filled):
    """Where every source image is right, no confidence lies below the threshold of atc."""
    unsure = np.eye(CLASSES, dtype=np.float32)[np.arange(40) % CLASSES] * 1e-3
    add(filled, "first", "perfect", logits=unsure, targets=unsure.argmax(1))
    words = ("--models", "first", "--source", "perfect", "--fit", "fit-*", "--test", "noise-1")
    answer = told(filled, *words)
    assert "atc" not in methods(answer) and {"confscore", "doc"} <= methods(answer)
    reason = "on the fit sets: a line needs at least 2 fit sets with different scores, got 4 with 1 different"
    assert any("atc" in line and line.endswith(reason) for line in answer["remarks"])
    assert refused(filled, *words, "--methods", "atc").endswith(f"atc {reason}")


def test_a_set_of_one_image_costs_only_the_methods_that_need_more(filled):
    for name in ("clean", "fit-0", "fit-1", "fit-2"):
        fill(filled, name, 1.0 + 0.3 * ord(name[-1]) % 2, models=("first",), features=True)
    fill(filled, "lone", models=("first",), n=1, features=True)
    words = (*FIRST, "--fit", "fit-0", "fit-1", "fit-2", "--test", "lone")
    answer = told(filled, *words)
    assert "fid" not in methods(answer) and "confscore" in methods(answer)
    reason = "on lone: a covariance of features needs at least 2 images, got 1"
    assert f"left out: fid: {reason}" in answer["remarks"]
    assert refused(filled, *words, "--methods", "fid") == f"Error: fid {reason}"


def test_a_single_fit_set_leaves_the_direct_methods(filled):
    answer = told(filled, *FIRST, "--fit", "fit-0", "--test", "noise-1")
    assert {"doc", "cot-ts"} <= methods(answer) and "entropy" not in methods(answer)


def test_agreement_is_of_the_sets_that_all_models_have_in_whatever_order(filled):
    fill(filled, "noise-3", models=("first", "third"))
    told_in_order = []
    for order in (MODELS, MODELS[::-1]):
        words = ("--models", *order, "--source", "clean", "--test", "noise-*", "--methods", "aline-d", "gde")
        answer = told(filled, *words)
        assert "aline-d, gde: 1 of 3 test sets, which only some of the models have, are left out" in answer["remarks"]
        by_key = {(e["model"], e["eval_setting"], e["method"]): e["estimate"] for e in answer["estimates"]}
        told_in_order.append(by_key)
    assert told_in_order[0] == pytest.approx(told_in_order[1])
    assert {s for _, s, m in told_in_order[0] if m == "gde"} == {"noise-1", "noise-2"}


def test_models_that_share_no_set_are_told_so(filled):
    fill(filled, "dusk-1", models=("first",))
    fill(filled, "dusk-2", models=("second", "third"))
    said = refused(filled, *ALL, "--test", "dusk-*", "--methods", "gde")
    assert said == "Error: gde on the test sets: expected sets that all models have, got none"


def test_models_that_agree_alike_on_the_source_keep_gde(filled):
    same = outputs("clean")
    for model in MODELS:
        add(filled, model, "same", logits=same[0], targets=same[1])
    answer = told(filled, "--models", *MODELS, "--source", "same", "--test", "noise-1")
    assert "gde" in methods(answer) and "aline-s" not in methods(answer)
    reason = "on noise-1: the agreement line needs models that differ on the source set, got 100 % agreement for all"
    assert f"left out: aline-s, aline-d: {reason}" in answer["remarks"]


def test_rotation_logits_of_two_heads_are_not_fitted_together(filled):
    for number, head in enumerate(("a" * 64, "a" * 64, "b" * 64)):
        fill(filled, f"turned-{number}", 0.5 * number, models=("first",), recorded=head)
    fill(filled, "clean", 2.5, models=("first",), recorded="c" * 64)  # not looked at by the score
    words = (*FIRST, "--fit", "turned-0", "turned-1", "--test", "turned-2", "--methods", "rotation")
    said = refused(filled, *words)
    assert "the sets of first hold the logits of 2 rotation heads (2 of aaaaaaaa, 1 of bbbbbbbb): `python eval" in said
    assert "--record rotation --db " in said


# ---- partly there -----------------------------------------------------------------------------------------


def test_agreement_methods_use_the_labelled_images_of_a_partly_labelled_set(filled):
    from testbed.studies.labelfree.agreement import aline_s

    def rows(name):
        each = [outputs(name, number, {"clean": 2.5, "noise-1": 1.6}[name]) for number in range(3)]
        return np.stack([logits.argmax(1) for logits, _ in each]), each[0][1]

    for name in ("clean", "noise-1"):
        for number, model in enumerate(MODELS):
            logits, targets = outputs(name, number, {"clean": 2.5, "noise-1": 1.6}[name])
            known = np.where(np.arange(300) < 200, targets, -1)
            add(filled, model, f"half-{name}", logits=logits, targets=known)
    words = ("--models", *MODELS, "--source", "half-clean", "--test", "half-noise-1", "--methods", "aline-s", "doc")
    answer = told(filled, *words)
    (source, labels), (test, truth) = rows("clean"), rows("noise-1")
    expected = aline_s(source[:, :200], test, (source == labels)[:, :200].mean(axis=1)).accuracies
    by_method = {(e["model"], e["method"]): e for e in answer["estimates"]}
    for row, model in enumerate(MODELS):
        assert by_method[model, "aline-s"]["estimate"] == pytest.approx(expected[row], abs=1e-4)
        accuracy = 100 * (test[row] == truth)[:200].mean()
        accuracies = (by_method[model, method]["accuracy"] for method in ("aline-s", "doc"))
        assert tuple(accuracies) == pytest.approx((accuracy, accuracy))


def test_a_group_of_which_only_some_sets_are_stored_is_told(filled, tmp_path):
    folder = tmp_path / "registry" / "eval_settings"
    folder.mkdir(parents=True)
    (folder / "fits.py").write_text(
        "from testbed import EvalSetting, registry\n"
        "from testbed.data.arrays import ArrayDataset\n"
        "data = ArrayDataset(path='nowhere.npz')\n"
        "for i in range(9):\n"
        "    registry.add_eval_setting(EvalSetting(f'fit-{i}', dataset=data))\n"
        "registry.add_group('fits', ['fit-*'])\n"
    )
    more = ("--registry", folder.parent, "--test", "noise-1", "--methods", "entropy")
    answer = told(filled, *FIRST, "--fit", "fits", *more)
    assert "4 of 9 sets of fits are stored" in answer["remarks"]
    fill(filled, "fit-4", models=("second",))
    words = ("--models", "first", "second", "--source", "clean", "--fit", "fit-*", *more)
    remarks = told(filled, *words)["remarks"]
    assert "4 of 9 sets of fit-* are stored for first" in remarks
    assert "5 of 9 sets of fit-* are stored for second" in remarks
    assert not any("are stored" in line for line in told(filled, *FIRST, "--fit", "fit-0", "fit-1", *more)["remarks"])


# ---- what was asked ---------------------------------------------------------------------------------------


def test_test_sets_that_were_seen_before_are_told(filled):
    remarks = told(filled, *FIRST, "--fit", "fit-*", "--test", "fit-0", "fit-1", "noise-1", "clean")["remarks"]
    assert "2 of 4 test sets are among the fit sets: their errors are not out of sample" in remarks
    assert "1 of 4 test sets is the source: its error is not out of sample" in remarks
    plain = told(filled, *FIRST, "--fit", "fit-*", "--test", "noise-1")["remarks"]
    assert not any("out of sample" in line for line in plain)


def test_other_class_shares_and_other_models_do_not_overwrite_each_other(filled, tmp_path):
    (tmp_path / "shares.txt").write_text("1\n2\n3\n4\n")
    for prior in ("source", "uniform", tmp_path / "shares.txt"):
        told(filled, *FIRST, "--test", "noise-1", "--methods", "cot", "--class-prior", prior)
    for models in (MODELS, MODELS[:2]):
        told(filled, "--models", *models, "--source", "clean", "--test", "noise-1", "--methods", "gde")
    kept = {}
    for e in estimates(filled):
        if e["model"] == "first":
            kept.setdefault(e["method"], {})[e["assumes"]] = e["estimate"]
    assert len(kept["cot"]) == len(set(kept["cot"].values())) == 3
    assert {"source", "uniform"} < kept["cot"].keys() and any(a.startswith("shares ") for a in kept["cot"])
    assert sorted(a[:8] for a in kept["gde"]) == ["2 models", "3 models"]


def test_what_a_line_is_worth_is_stored_with_the_estimate(filled):
    answer = told(filled, *FIRST, "--fit", "fit-*", "--test", "noise-1", "--methods", "entropy", "doc")
    rows = {e["method"]: e for e in estimates(filled)}
    (entropy,) = (e for e in answer["estimates"] if e["method"] == "entropy")
    assert rows["entropy"]["r2"] == pytest.approx(entropy["r2"]) and rows["entropy"]["extrapolates"] in (True, 1)
    assert rows["doc"]["r2"] is None
    assert f"score lines: R2 {entropy['r2']:.3f} (entropy)" in answer["remarks"]


def test_methods_may_be_named_twice_and_all_among_others_means_all(filled):
    once = told(filled, *FIRST, "--test", "noise-1", "--methods", "atc-ne", "atc-ne")
    assert [e["method"] for e in once["estimates"]].count("atc-ne") == 1
    every = told(filled, *FIRST, "--test", "noise-1", "--methods", "atc-ne", "all")
    assert {"doc", "cot", "atc-ne"} <= methods(every)
    assert "no method 'fit'" in refused(filled, *FIRST, "--test", "noise-1", "--methods", "all", "fit")


def test_the_advised_command_keeps_limit_and_checkpoint(filled):
    for name in ("clean", "noise-1", "fit-0", "fit-1"):
        fill(filled, name, models=("first",), variant="limit=100,seed=3")
    words = (*FIRST, "--fit", "fit-*", "--test", "noise-1", "--methods", "fid", "--variant", "limit=100,seed=3")
    assert "--eval-settings clean 'fit-*' noise-1 --record features --limit 100 --seed 3 --db " in refused(
        filled, *words
    )
    for name in ("clean", "noise-1", "fit-0", "fit-1"):
        logits, targets = outputs(name)
        recall(filled, add(filled, "first@mine", name, logits=logits, targets=targets), checkpoint="/w/mine.pt")
    words = ("--models", "first@mine", "--source", "clean", "--fit", "fit-*", "--test", "noise-1", "--methods", "fid")
    assert "`python eval.py --models first --checkpoint /w/mine.pt --eval-settings clean" in refused(filled, *words)


def test_results_that_are_not_of_whole_settings_are_told_in_one_line(store):
    store.begin_run()
    for name in ("clean", "noise-1"):
        fill(store, name, models=("first",), variant="limit=100")
    fill(store, "elsewhere", models=("first",))  # whole, but nobody asks for it
    words = (*FIRST, "--test", "noise-1", "--methods", "doc")
    line = "results with limit=100: there are none of the whole settings"
    assert told(store, *words)["remarks"].count(line) == 1
    for style in ("table", "markdown"):
        assert line in ask(store, *words, style=style).stdout.splitlines()
    csv = ask(store, *words, style="csv")
    assert line in csv.stderr.splitlines() and line not in csv.stdout
    assert "results with limit=100" in told(store, *words, "--variant", "limit=100")["remarks"]
    for name in ("clean", "noise-1"):
        fill(store, name, models=("first",))
    assert not any("results with" in remark for remark in told(store, *words)["remarks"])


def test_a_stored_model_means_by_no_variant_what_find_means(store):
    from testbed.entries.registry import Registry
    from testbed.studies.labelfree.sets import StoredModel

    store.begin_run()
    fill(store, "clean", models=("first",), variant="limit=100")
    assert StoredModel(store, Registry(), "first").variant == "limit=100"
    fill(store, "noise-1", models=("first",))
    assert StoredModel(store, Registry(), "first").variant == ""


def test_the_first_of_several_reasons_is_told(filled):
    """Features are of no use to who has no sets to fit a line on."""
    answer = told(filled, *FIRST, "--test", "noise-1")
    (line,) = (line for line in answer["remarks"] if ", fid," in line)
    assert line.endswith("name them with --fit")


def test_lines_that_say_nothing_are_noted(filled):
    logits, targets = outputs("fit-0")
    for number in (1.0, 2.0, 3.0):
        add(filled, "first", f"alike-{number:.0f}", logits=logits * np.float32(number), targets=targets)
    sure = np.eye(CLASSES, dtype=np.float32)[np.arange(40) % CLASSES]
    add(filled, "first", "sure", logits=sure, targets=sure.argmax(1))
    words = ("--models", "first", "--source", "sure", "--fit", "alike-*", "--test", "noise-1")
    remarks = told(filled, *words, "--methods", "confscore", "doc-ts")["remarks"]
    accuracy = 100 * (logits.argmax(1) == targets).mean()
    flat = f"the fit sets are all {accuracy:.1f} % accurate: a line through them says that of every set (1 set)"
    assert flat in remarks
    assert any(
        line.endswith(": the NLL of the source still falls at the end of the search (1 set)") for line in remarks
    )


# ---- tables -----------------------------------------------------------------------------------------------


def test_several_models_and_groups_get_a_table_of_groups_each_and_one_of_the_models(filled):
    words = (*ALL, "--test", "noise-*", "blur-1", "--methods", "doc", "ac")
    details = {(e["model"], e["method"], e["group"]): e["rmse"] for e in told(filled, *words)["errors"]}
    text = ask(filled, *words, style="table").stdout
    titles = [line for line in text.splitlines() if line.startswith("Errors")]
    pooled = [line for line in ask(filled, *words, "--summary", style="table").stdout.splitlines() if "Errors" in line]
    assert pooled == titles[3:]
    each = "in percentage points: RMSE of each group, then over all sets"
    assert titles[:3] == [f"Errors of {model} {each}" for model in MODELS]
    assert titles[3:] == ["Errors of 3 models in percentage points: RMSE of each model, then over all sets"]
    marked = ask(filled, *words, style="markdown").stdout
    assert marked.count("| method | kind | noise-* | blur-1 | sets | RMSE |") == 3
    assert "| method | kind | first | second | third | sets | RMSE |" in marked
    second = marked.split("**Errors of second")[1]
    row = next(line for line in second.splitlines() if line.startswith("| doc |"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    groups = [f"{details['second', 'doc', group]:.2f}" for group in ("noise-*", "blur-1")]
    assert cells[2:6] == [*groups, "3", f"{details['second', 'doc', 'all']:.2f}"]
    assert ask(filled, *words, style="latex").stdout.count(r"\begin{tabular}") == 4


def test_groups_that_have_no_room_are_told(filled):
    for number in range(9):
        fill(filled, f"odd-{number}", 0.2 * number, models=("first",))
    words = (*FIRST, "--test", *(f"odd-{i}" for i in range(9)), "--methods", "doc", "--summary")
    text = ask(filled, *words, style="table").stdout
    assert "no columns for 9 groups, more than 8: `--format json` tells the errors of each" in text


def test_a_true_accuracy_is_shown_if_any_estimate_of_the_set_knows_it():
    from testbed.studies.labelfree.answers import SetEstimate
    from testbed.studies.labelfree.report import sets_table

    same = dict(model="m", eval_setting="s", group="g", kind="direct", value=50.0, evaluation_id=1)
    estimates = [SetEstimate(method=m, accuracy=a, **same) for m, a in (("doc", None), ("ac", 61.0), ("cot", None))]
    assert sets_table(estimates, "m")[0] == [["s", "61.0", "50.0", "50.0", "50.0"]]
