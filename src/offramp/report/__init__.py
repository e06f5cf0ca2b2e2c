"""Reports: findings on held-out samples, their figures, and one HTML page.

Example:
    >>> import tempfile, torch, offramp
    >>> from offramp.features import ArraySource, StoreSource, extract
    >>> _ = torch.manual_seed(0)
    >>> inputs = torch.randn(900, 8)
    >>> labels = (inputs[:, :4].sum(1) > 0).long()
    >>> stages = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(3)]
    >>> backbone = offramp.Backbone("tiny", stages, {2: torch.nn.Linear(8, 2)}, num_classes=2)
    >>> quick = offramp.JointSettings(cost_weights=(0.1, 1.0), warmup_epochs=1, epochs=1)
    >>> known, validation = (inputs[:400], labels[:400]), (inputs[400:700], labels[400:700])
    >>> model = offramp.fit(backbone, known, validation, settings=quick, anyway=True, progress=False)
    >>> test = ArraySource(inputs[700:], labels[700:], name="tiny-test")
    >>> store = extract(backbone, test, tempfile.mkdtemp(), progress=False)
    >>> point = model.at(cost=0.9).point
    >>> findings = find(model, StoreSource(store, pooling="rich"), point=point, classes=["below", "above"])
    >>> findings.samples, findings.full.name
    (200, 'tiny')
    >>> write_report(findings, tempfile.mkdtemp(), source=test).name
    'report.html'
"""

from offramp.report._findings import find
from offramp.report._page import write_report

__all__ = ["find", "write_report"]
