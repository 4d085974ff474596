"""A sample of the zoo, one model for each way of writing an activation that models have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("timm")
sys.path.insert(0, str(Path(__file__).parent))

import page  # noqa: E402
import sweep  # noqa: E402 - it imports the frameworks

SAMPLE = {
    "torchvision:googlenet": "equal",  # functional only
    "torchvision:inception_v3": "equal",
    "torchvision:densenet121": "equal",  # modules, and one functional
    "torchvision:mobilenet_v2": "equal",  # relu6
    "torchvision:mobilenet_v3_small": "equal",  # beside hard-swish and hard-sigmoid
    "torchvision:shufflenet_v2_x0_5": "equal",  # on chunks
    "torchvision:vgg11": "equal",
    "torchvision:efficientnet_b0": "none",  # SiLU
    "torchvision:vit_b_16": "none",  # GELU
    "torchvision:fcn_resnet50": "equal",
    "torchvision:ssdlite320_mobilenet_v3_large": "equal",
    "torchvision:r3d_18": "equal",
    "torchvision:raft_small": "equal",  # in place on views
    "timm:byobnet:test_byobnet": "equal",
    "timm:ghostnet": "equal",
    "timm:res2net": "equal",
    "timm:resnest": "equal",
    "torchvision:quantized_mobilenet_v2": "equal",
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.filterwarnings("ignore")  # the models' own
@pytest.mark.parametrize("name", SAMPLE)
def test_model(name: str) -> None:
    (case,) = [case for case in sweep.cases([name]) if case.name.startswith(name)][:1]
    results = sweep.compare(case)
    expected = dict.fromkeys(sweep.RULES, SAMPLE[name]) | {"outgoing": "equal"}
    assert [(r, r.outcome) for r in results if r.outcome != expected[r.rule]] == []
    assert not all("plain" in result.detail for result in results)


def test_the_page_has_every_model_and_counts_it() -> None:
    results = [
        sweep.Result("timm:a", "guided", "equal", "7 nodes (the plain one too)"),
        sweep.Result("timm:a", "deconv", "none"),
        sweep.Result("timm:a", "outgoing", "failed", "differs by 1.0e-01 of the largest"),
        sweep.Result("timm:b", "-", "unrun", "RuntimeError: too large"),
    ]
    lines = [f"{result} 3s" for result in results]
    text = page.page(page.read([*lines, "{'equal': 1}"]))
    assert r"| `timm:a` | 7\* | none | failed |" in text
    assert "| `timm:b` | unrun | unrun | unrun |" in text
    assert "| equal | 1 | 0 | 0 |" in text
    assert "| failed | 0 | 0 | 1 |" in text
    assert "| unrun | 1 | 1 | 1 |" in text
