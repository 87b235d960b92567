"""The spine: models and rows of a setting in, outputs out. No database, no process of its own.

Whoever wants outputs calls `predict`: the worker of a run, the shape-bias call, the diagnosis of references, the
training of rotation heads. What they do with the outputs is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from testbed.data.rows import Rows
from testbed.engine.forward import Forward, Shown, on_device, within_memory
from testbed.engine.preparing import Copies, LocalPreparer, Order, Preparer, Tally
from testbed.entries.eval_setting import EvalSetting
from testbed.errors import DataError, EntryError, ModelError
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions
from testbed.store.outputs import Outputs, joined


def predict(
    models: Sequence[LoadedModel],
    setting: EvalSetting,
    rows: Rows,
    options: RunOptions,
    preparer: Preparer | None = None,
    *,
    note: Callable[[str], None] = lambda text: None,
    tally: Tally | None = None,
    left: Callable[[LoadedModel, BaseException], None] | None = None,
) -> Iterator[Outputs]:
    """Outputs of every model for these rows of the setting, batch by batch, in the order of the rows.

    The models must share a preparation (`share_preparation`): each batch is prepared once and shown to each of them.
    Images that cannot be read are an error or, with options.skip_bad_images, missing from the outputs' rows. A
    `preparer` that is given keeps its data open for the next call; `note` is told what the user should know; `tally`
    counts. Where `left` is given, it is told of a model that fails, and the others go on.
    """
    if not share_preparation(models, setting, options):
        raise EntryError(f"predict: {', '.join(m.entry.name for m in models)} do not prepare their images alike")
    own, first, copies = preparer or LocalPreparer(options), models[0], Copies()
    try:
        shown = Shown(setting, first.device, options, any(model.channels_last for model in models))
        forwards = _forwards(models, setting, own, options, left)
        size = max(model.entry_batch_size(setting, options) for model in models)
        order = Order(setting, first.entry, rows, size, shown.cpu_perturbs)
        for batch in on_device(own.batches(order, tally or Tally()), first.device):
            for part in within_memory(shown, batch, halved=lambda size: None):
                for forward in list(forwards):
                    # What may be written into is a copy, but for the last, which gets the original.
                    seen = copies.of(part) if forward.writes and forward is not forwards[-1] else part
                    try:
                        outputs = list(forward.outputs(seen, note))
                    except (Exception, SystemExit) as error:  # a network of somebody else may call sys.exit
                        if left is None:
                            raise
                        forwards.remove(forward)
                        left(forward.loaded, error)
                    else:
                        yield from outputs
            if not forwards:
                return
    finally:
        if preparer is None:
            own.close()


def _forwards(
    models: Sequence[LoadedModel],
    setting: EvalSetting,
    preparer: Preparer,
    options: RunOptions,
    left: Callable[[LoadedModel, BaseException], None] | None,
) -> list[Forward]:
    """The models made ready for the setting; one that cannot be, such as without features to record, is left out."""
    forwards = []
    for model in models:
        try:
            forwards.append(Forward(model, setting, preparer.samples(setting), options))
        except (ModelError, EntryError) as error:
            if left is None:
                raise
            left(model, error)
    return forwards


def share_preparation(models: Sequence[LoadedModel], setting: EvalSetting, options: RunOptions) -> bool:
    """Whether the models see the same pictures on the same device, in batches that can be cut from one another."""
    needs = [(m.device, setting.transforms_for(m.entry)) for m in models]
    sizes = [m.entry_batch_size(setting, options) for m in models]
    return all(need == needs[0] for need in needs) and all(max(sizes) % size == 0 for size in sizes)


def predict_all(model: LoadedModel, setting: EvalSetting, options: RunOptions, rows: Rows | None = None) -> Outputs:
    """The outputs of one model as one object: for all rows of the setting, or for some of them."""
    preparer = LocalPreparer(options)
    try:
        chosen = setting.rows(preparer.samples(setting), options.limit) if rows is None else rows
        parts = list(predict([model], setting, chosen, options, preparer))
    finally:
        preparer.close()
    if not parts:
        raise DataError(f"no image of '{setting.name}' can be read")
    return joined(parts)
