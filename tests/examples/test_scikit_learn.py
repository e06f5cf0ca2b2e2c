"""The estimator of examples/, in the hands of scikit-learn."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no guarantee"),  # so few samples are not enough for one
    pytest.mark.filterwarnings(
        "ignore:Stochastic Optimizer"
    ),  # of scikit-learn, which trains the network for 30 epochs
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "scikit_learn.py"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def network(names: dict[str, Any]) -> Any:
    images, labels = load_digits(return_X_y=True)
    return names["as_module"](
        MLPClassifier((256,) * 4, max_iter=30, random_state=0).fit(images[900:] / 16, labels[900:])
    )


def test_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    out = capsys.readouterr().out
    assert float(out.split()[1]) > 0.85
    folds = out.split("[")[-1].rstrip("]\n").split()
    assert len(folds) == 3
    assert min(map(float, folds)) > 0.8


def test_in_a_pipeline_and_a_search(names: dict[str, Any], network: Any) -> None:
    images, labels = load_digits(return_X_y=True)
    rows, answers = images[:400], labels[:400]
    pipeline = make_pipeline(FunctionTransformer(names["scale"]), names["EarlyExitClassifier"](network))
    trained = {name: row.detach().clone() for name, row in network.named_parameters()}
    learns = {name: row.requires_grad for name, row in network.named_parameters()}
    search = GridSearchCV(pipeline, {"earlyexitclassifier__cost": [0.6, 1.05]}, cv=2).fit(rows, answers)
    best = search.best_estimator_
    assert best.score(images[400:600], labels[400:600]) > 0.75
    probabilities = best.predict_proba(images[400:600])
    assert probabilities.shape == (200, 10)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (best.predict(images[400:600]) == probabilities.argmax(1)).all()
    for fitted in (network, best[-1].network):  # the caller's, and the copy that scikit-learn has made of it
        assert all(torch.equal(row, trained[name]) for name, row in fitted.named_parameters())
    assert {name: row.requires_grad for name, row in network.named_parameters()} == learns
    assert not any(row.requires_grad for row in best[-1].model_.backbone.parameters())


def test_is_an_estimator(names: dict[str, Any], network: Any) -> None:
    estimator = names["EarlyExitClassifier"](network, cost=0.7, seed=3)
    copy = clone(estimator)
    assert copy.get_params()["cost"] == 0.7
    assert copy.set_params(cost=0.4).cost == 0.4
    with pytest.raises(NotFittedError):
        copy.predict(np.zeros((2, 64)))
