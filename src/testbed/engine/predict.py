"""The spine: models and rows of a setting in, outputs out. No database, no process of its own.

Whoever wants outputs calls `predict`: the worker of a run, the shape-bias call, the diagnosis of references, the
training of rotation heads. What they do with the outputs is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from testbed.data.rows import Rows
from testbed.engine.forward import Forward, Shown, within_memory
from testbed.engine.preparing import Preparer
from testbed.entries.eval_setting import EvalSetting
from testbed.errors import DataError, EntryError
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions
from testbed.store.outputs import Outputs, joined


def predict(
    models: Sequence[LoadedModel],
    setting: EvalSetting,
    rows: Rows,
    options: RunOptions,
    preparer: Preparer | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Outputs]:
    """Outputs of every model for these rows of the setting, batch by batch, in the order of the rows.

    The models must share a preparation (`share_preparation`): each batch is decoded, transformed and perturbed once and
    shown to each of them. `Outputs.model` tells whose they are. Images that cannot be read are an error or, with
    options.skip_bad_images, missing from the outputs' rows. A `preparer` that is given keeps its data open for the next
    call; `note` is told what the user should know, such as a batch that did not fit into memory.
    """
    if not share_preparation(models, setting, options):
        raise EntryError(f"predict: {', '.join(m.entry.name for m in models)} do not prepare their images alike")
    own = Preparer(options) if preparer is None else None
    preparer = preparer or own
    assert preparer is not None
    first = models[0]
    try:
        shown = Shown(setting, first.device, options)
        forwards = [Forward(model, setting, preparer.samples(setting), options) for model in models]
        size = first.entry_batch_size(setting, options)
        for batch in preparer.batches(setting, first.entry, rows, size, perturb=shown.cpu_perturbs):
            for part in within_memory(shown, batch, halved=lambda size: None):
                for forward in forwards:
                    # A network may write into its input (an in-place first layer): only the last gets the original.
                    yield from forward.outputs(part if forward is forwards[-1] else part.copy(), note)
    finally:
        if own is not None:
            own.close()


def share_preparation(models: Sequence[LoadedModel], setting: EvalSetting, options: RunOptions) -> bool:
    """Whether the models see the same pictures in the same batches on the same device."""
    needs = [(m.device, setting.transforms_for(m.entry), m.entry_batch_size(setting, options)) for m in models]
    return all(need == needs[0] for need in needs)


def predict_all(model: LoadedModel, setting: EvalSetting, options: RunOptions, rows: Rows | None = None) -> Outputs:
    """The outputs of one model as one object: for all rows of the setting, or for some of them."""
    preparer = Preparer(options)
    try:
        chosen = setting.rows(preparer.samples(setting), options.limit) if rows is None else rows
        parts = list(predict([model], setting, chosen, options, preparer))
    finally:
        preparer.close()
    if not parts:
        raise DataError(f"no image of '{setting.name}' can be read")
    return joined(parts)
