"""Two functions and a bill: python examples/callables_and_a_bill.py.

An expensive model can only be called, such as an API. `offramp.annotate` puts a cheap function in front of it, asks
the expensive one only where the cheap one is unsure, and bounds the share of answers that differ. No labels are
needed. Both are classifiers of scikit-learn here, so that the example costs nothing; the prices are made up. Needs
`offramp[demo]`.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

import offramp

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
known, unlabelled = order[:300], order[300:]
small = LogisticRegression(max_iter=300).fit(images[known] / 16, labels[known])
large = ExtraTreesClassifier(500, random_state=0).fit(images[order[:600]], labels[order[:600]])


def cheap(rows: np.ndarray) -> np.ndarray:
    """Return scores `N x 10`, for a label alone would not say how sure it is."""
    return small.decision_function(rows / 16)


def expensive(rows: np.ndarray) -> list[str]:
    """Return one label per row: all that many APIs give."""
    return [str(label) for label in large.predict(rows)]


classes = "0123456789"
inputs = images[unlabelled].astype(np.float32)
members = offramp.cascade(
    offramp.callable_model(cheap, classes, price={"per_call": 0.0001, "currency": "EUR"}),
    offramp.callable_model(expensive, classes, price={"per_call": 0.01, "currency": "EUR"}),
)

# What would it cost? A few inputs are asked to find out.
print(offramp.annotation.estimate_bill(inputs, members, label_budget=150, max_drop=0.05))

# Do it: at most 150 answers are bought to learn and to test with; at most 10 EUR are spent.
job = offramp.annotate(inputs, members, label_budget=150, max_drop=0.05, max_spend=10)
print(job.bill)
print(job.guarantee)

# The guarantee is about the expensive model's answers. Here all of them can be had, to compare.
truth = expensive(inputs)
differ = np.mean([ours != theirs for ours, theirs in zip(job.names, truth, strict=True)])
print(f"{100 * differ:.1f} % of the answers differ from the expensive model's; guaranteed were at most 5 %")
