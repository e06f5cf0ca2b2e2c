"""A frozen network with exits as an estimator of scikit-learn: python examples/scikit_learn.py.

`EarlyExitClassifier` is about twenty lines to copy. `fit` trains the exits alone, on a part of the data, and tunes on
the rest; the network stays as it is. It works in pipelines, in `cross_val_score` and in searches over `cost`. The
network must not have been trained on the data that you cross-validate on. Needs `offramp[demo]`.
"""

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import offramp


class EarlyExitClassifier(ClassifierMixin, BaseEstimator):
    """A torch module whose outputs are the classes 0, 1, ..., answered early where that is enough."""

    def __init__(self, network=None, *, cost=0.5, validation=0.4, seed=0):
        self.network, self.cost, self.validation, self.seed = network, cost, validation, seed

    def fit(self, X, y):
        """Fit exits on a part of the rows, and tune on the others."""
        X, y = np.asarray(X, np.float32), np.asarray(y)
        X_fit, X_tune, y_fit, y_tune = train_test_split(
            X, y, test_size=self.validation, random_state=self.seed, stratify=y
        )
        model = offramp.fit(self.network, (X_fit, y_fit), (X_tune, y_tune), progress=False)
        self.model_, self.classes_ = model.at(cost=self.cost), np.arange(model.backbone.num_classes)
        return self

    def predict_proba(self, X):
        """Return calibrated probabilities; `self.model_.predict` also returns exits, costs and prediction sets."""
        check_is_fitted(self)
        return self.model_.predict(np.asarray(X, np.float32)).probabilities.numpy()

    def predict(self, X):
        """Return the most probable classes."""
        columns = self.predict_proba(X).argmax(1)
        return self.classes_[columns]


def as_module(trained: MLPClassifier) -> torch.nn.Module:
    """Return a network of scikit-learn as a torch module: here, the frozen network."""
    layers = []
    for weights, biases in zip(trained.coefs_, trained.intercepts_, strict=True):
        linear = torch.nn.Linear(*weights.shape)
        linear.load_state_dict({"weight": torch.as_tensor(weights.T), "bias": torch.as_tensor(biases)})
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).eval()


def scale(pixels):
    """Scale pixels to 0 to 1."""
    return np.asarray(pixels) / 16


if __name__ == "__main__":
    images, labels = load_digits(return_X_y=True)
    seen, images, seen_labels, labels = train_test_split(images, labels, test_size=0.5, random_state=0)
    network = as_module(MLPClassifier((128,) * 4, max_iter=30, random_state=0).fit(scale(seen), seen_labels))
    pipeline = make_pipeline(FunctionTransformer(scale), EarlyExitClassifier(network, cost=0.6))

    X_train, X_test, y_train, y_test = train_test_split(images, labels, random_state=0)
    pipeline.fit(X_train, y_train)
    print(f"accuracy {pipeline.score(X_test, y_test):.3f}")
    print(f"probabilities of the first row: {pipeline.predict_proba(X_test)[0].round(3)}")
    print(f"mean cost {pipeline[-1].model_.predict(scale(X_test).astype(np.float32)).relative_cost.mean():.2f}")
    print(f"accuracy in three folds: {cross_val_score(pipeline, images, labels, cv=3).round(3)}")
