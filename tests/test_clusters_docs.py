"""docs/clusters.md: its blocks can be pasted, and the options that it names exist.

Whether a cluster takes them is not tested here.
"""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from guides import ROOT
from testbed.commands import database, evaluate

PAGE = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^ *```(\w*)(?: title=(\S+))?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall(PAGE)
YAML = {title: content for language, title, content in BLOCKS if language == "yaml"}
SHELL = [content for language, _, content in BLOCKS if language == "bash"]
COMMAND = re.compile(r"\b(?:(eval|db)\.py|testbed (eval|db))( [^|&;#`\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# In sentences: of Slurm, Ray and SkyPilot.
OF_OTHERS = {"--array", "--exclusive", "--gpus-per-node", "--gres", "--object-store-memory", "--requeue", "--secret"}


def options(*commands):
    return {name for command in commands for parameter in command.params for name in parameter.opts}


EVAL, DB = options(evaluate.main), options(database.main)


def test_every_block_says_its_language():
    assert {language for language, _, _ in BLOCKS} == {"bash", "yaml", "json", "dockerfile", "text"}
    assert PAGE.count("```") == 2 * len(BLOCKS)
    assert set(YAML) == {"shards.yaml", "rayjob.yaml", "spot.yaml"}


def test_the_rule_of_a_bucket_is_json():
    (rule,) = (json.loads(content) for language, _, content in BLOCKS if language == "json")
    assert rule["Rules"][0]["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] > 0


@pytest.mark.parametrize("script", SHELL, ids=range(len(SHELL)))
def test_shell_blocks_can_be_read_by_bash(script):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    checked = subprocess.run([bash, "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert not checked.stderr and checked.returncode == 0


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (name, words)
        for first, second, words in COMMAND.findall(PAGE.replace("\\\n", " "))
        for name in [first or second]
    ],
)
def test_commands_name_options_that_exist(script, words):
    assert set(OPTION.findall(words)) <= (EVAL if script == "eval" else DB)


def test_sentences_name_options_that_exist():
    sentences = FENCE.sub("", PAGE)
    named = {option for code in re.findall(r"`([^`]+)`", sentences) for option in OPTION.findall(code)}
    assert {"--ray", "--ray-gpu-share", "--shard"} <= named
    assert named - EVAL - DB == OF_OTHERS


def at(manifest, path):
    """What lies in a manifest under keys and numbers that are joined by dots."""
    for key in path.split("."):
        manifest = manifest[int(key) if key.isdigit() else key]
    return manifest


@pytest.mark.parametrize(
    ("title", "path", "expected"),
    [
        ("shards.yaml", "apiVersion", "batch/v1"),
        ("shards.yaml", "kind", "Job"),
        ("shards.yaml", "metadata.name", "testbed"),
        ("shards.yaml", "spec.completionMode", "Indexed"),
        ("shards.yaml", "spec.template.spec.restartPolicy", "Never"),  # which both policies of failures demand
        ("shards.yaml", "spec.podFailurePolicy.rules.0.onPodConditions.0.type", "DisruptionTarget"),
        ("rayjob.yaml", "apiVersion", "ray.io/v1"),
        ("rayjob.yaml", "kind", "RayJob"),
        ("rayjob.yaml", "spec.rayClusterSpec.authOptions.mode", "token"),
        ("rayjob.yaml", "spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus", "0"),
        ("rayjob.yaml", "spec.rayClusterSpec.workerGroupSpecs.0.groupName", "gpu"),
        ("rayjob.yaml", "spec.rayClusterSpec.workerGroupSpecs.0.template.spec.containers.0.name", "ray-worker"),
        ("spot.yaml", "resources.use_spot", True),
        ("spot.yaml", "secrets.PGPASSWORD", None),
    ],
)
def test_manifests_have_the_keys_that_they_must_have(title, path, expected):
    assert at(yaml.safe_load(YAML[title]), path) == expected


def test_volumes_of_manifests_are_those_that_are_mounted():
    job, ray = (yaml.safe_load(YAML[title])["spec"] for title in ("shards.yaml", "rayjob.yaml"))
    groups = [ray["rayClusterSpec"]["headGroupSpec"], *ray["rayClusterSpec"]["workerGroupSpecs"]]
    for pod in (group["template"]["spec"] for group in (job, *groups)):
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["resources"]["limits"]["memory"]


def test_pods_of_the_job_have_every_shard_once():
    spec = yaml.safe_load(YAML["shards.yaml"])["spec"]
    (command,) = spec["template"]["spec"]["containers"][0]["args"]
    (word,) = re.findall(r'--shard (".*")', command)
    script = f"for JOB_COMPLETION_INDEX in $(seq 0 {spec['completions'] - 1}); do echo {word}; done"
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60).stdout.split()
    assert told == [f"{number}/8" for number in range(1, 9)]
