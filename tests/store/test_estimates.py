"""Estimates without labels in the database: made again they replace, and they go with their evaluation."""

import sqlalchemy as sa

from stored_results import add, again, back_to_schema_2
from testbed.store import schema
from testbed.store.estimates import estimates, save_estimates
from testbed.store.manage import remove_evaluation


def row(evaluation_id, method="atc", value=61.5, **more):
    plain = dict(source="clean", fit="", assumes="", set_group="noise", accuracy=60.0, notes=["a note"])
    plain |= dict(extrapolates=False, r2=None)
    return {"evaluation_id": evaluation_id, "method": method, "value": value, **plain, **more}


def test_estimates_are_read_with_their_names_and_replaced_when_made_again(store):
    store.begin_run()
    evaluation = add(store, "m", "s")
    fitted = dict(fit="meta-*", extrapolates=True, r2=0.9)
    save_estimates(store, [row(evaluation), row(evaluation, "entropy", 58.0, **fitted)])
    save_estimates(store, [row(evaluation, value=62.5, accuracy=None)])
    plain = {"model": "m", "eval_setting": "s", "set_group": "noise", "source": "clean", "variant": "", "assumes": ""}
    assert estimates(store) == [
        {**plain, "method": "atc", "estimate": 62.5, "accuracy": None, "fit": "", "extrapolates": 0, "r2": None},
        {**plain, "method": "entropy", "estimate": 58.0, "accuracy": 60.0, **fitted},
    ]


def test_estimates_that_assume_different_things_stand_side_by_side(store):
    store.begin_run()
    evaluation = add(store, "m", "s")
    save_estimates(store, [row(evaluation, "cot", 50.0, assumes="source")])
    save_estimates(store, [row(evaluation, "cot", 55.0, assumes="uniform")])
    save_estimates(store, [row(evaluation, "cot", 56.0, assumes="uniform")])
    assert {e["assumes"]: e["estimate"] for e in estimates(store)} == {"source": 50.0, "uniform": 56.0}


def test_estimates_go_with_the_evaluation_they_were_made_from(store):
    store.begin_run()
    save_estimates(store, [row(add(store, "m", "s"))])
    add(store, "m", "s")  # run again
    assert estimates(store) == []
    save_estimates(store, [row(add(store, "m", "t"))])
    remove_evaluation(store, "m", "t", override=True)
    assert estimates(store) == []


def test_a_database_of_the_first_schema_gets_the_table_and_keeps_its_results(store):
    store.begin_run()
    evaluation = add(store, "m", "s")
    with store.writing() as connection:
        back_to_schema_2(connection)
        connection.execute(sa.text("DROP TABLE estimates"))
        connection.execute(schema.schema_version.update().values(version=1))
    upgraded = again(store)
    save_estimates(upgraded, [row(evaluation)])
    assert [e["estimate"] for e in estimates(upgraded)] == [61.5]
    with upgraded.reading() as connection:
        assert connection.execute(sa.text("SELECT value FROM results")).scalars().all() == [50.0]


def test_an_older_database_tells_whose_logits_and_whose_images_and_what_accuracies_are(store):
    store.begin_run()
    add(store, "m", "s")
    with store.writing() as connection:
        back_to_schema_2(connection)
        for name, tags in (("even", "[]"), ("maps", '["explanations"]')):
            columns, values = "(name, version, derived_from, tags, created_at)", f"('{name}', 1, 's', '{tags}', '')"
            connection.execute(sa.text(f"INSERT INTO eval_settings {columns} VALUES {values}"))
    with again(store).reading() as connection:
        query = "SELECT name, logits_from, images_from FROM eval_settings ORDER BY name"
        told = [tuple(row) for row in connection.execute(sa.text(query))]
        kinds = connection.execute(sa.text("SELECT unit, better, lowest, highest FROM results")).all()
    assert told == [("even", "s", None), ("maps", None, "s"), ("s", None, None)]
    assert [tuple(kind) for kind in kinds] == [("%", "higher", 0.0, 100.0)]
