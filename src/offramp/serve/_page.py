"""The page of a server: the frontier with the point in force, exits, load and latency of the last minutes."""

from importlib.resources import files
from string import Template

from offramp.policy import OperatingPoint
from offramp.report._markup import prose, read_style
from offramp.report._palette import SERIES
from offramp.serve._charts import Series, draw_bars, draw_lines
from offramp.serve._history import BIN_S, BINS, Bin, History
from offramp.serve._metrics import REASONS
from offramp.serve._record import FAILED
from offramp.serve._requests import describe_briefly
from offramp.serve._scheduler import Scheduler

__all__ = ["render_page"]

MINUTES = BINS * BIN_S / 60

QUANTILES = {"p50": 0.5, "p99": 0.99}


def render_page(scheduler: Scheduler, history: History, *, name: str, artifact: str) -> str:
    """Return the page as HTML, without scripts.

    Args:
        scheduler: The scheduler.
        history: The last minutes.
        name: Name of the model.
        artifact: Name of the artifact that is served.
    """
    bins, total = history.bins(), history.total()
    network = scheduler.model.backbone.name
    cards = {
        f"Accuracy in % by relative cost: the frontier of {network} on the tune split": _draw_frontier(scheduler),
        f"Exits at which the samples of the last {MINUTES:g} minutes left": _draw_exits(scheduler, total),
        "Requests per second": _draw_load(bins),
        "Latency of answered requests in ms": _draw_latency(bins),
    }
    template = files("offramp.serve").joinpath("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(
        title=prose(name),
        of=prose(f"offramp serve, artifact {artifact}, network {network}"),
        style=read_style(),
        verdict=prose(_describe_point(scheduler)),
        cards="\n".join(
            f'<figure class="card">\n{svg}\n<figcaption>{prose(text)}</figcaption>\n</figure>'
            for text, svg in cards.items()
        ),
        rows="\n".join(
            f'<tr><td class="words">{prose(label)}</td><td>{prose(value)}</td></tr>'
            for label, value in _list_figures(scheduler, total)
        ),
        minutes=f"{MINUTES:g}",
    )


def _describe_point(scheduler: Scheduler) -> str:
    level = scheduler.level
    lowered = f" Lowered by {level} {'step' if level == 1 else 'steps'} of overload." if level else ""
    return f"Operating point in force: {describe_briefly(scheduler.point)}{lowered}"


def _list_figures(scheduler: Scheduler, total: Bin) -> list[tuple[str, str]]:
    """Return the rows of the table."""
    samples = total.exits.total()
    rows = [
        ("Samples in the queue now", f"{len(scheduler):,} of {scheduler.max_queue:,}"),
        ("Requests answered", f"{total.statuses[200]:,}"),
        ("Samples answered", f"{samples:,}"),
        ("Mean relative cost", f"{total.cost / samples:.3f}" if samples else "-"),
    ]
    if total.latencies:
        rows += [(f"Latency, {text}", f"{1000 * total.quantile_s(share):.3g} ms") for text, share in QUANTILES.items()]
    rows += [(f"Refused: {REASONS[status].replace('_', ' ')}", f"{total.statuses[status]:,}") for status in REASONS]
    return [*rows, ("Errors of the server", f"{total.statuses[FAILED]:,}")]


def _draw_frontier(scheduler: Scheduler) -> str:
    def locate(point: OperatingPoint) -> tuple[float, float]:
        return point.tune_metrics["cost"], 100 * point.tune_metrics["accuracy"]

    points, current = [*map(locate, scheduler.model.frontier)], locate(scheduler.point)
    full = scheduler.model.full_accuracy
    accuracies = [100 * full, *(accuracy for _, accuracy in (*points, current))]
    margin = max(0.05 * (max(accuracies) - min(accuracies)), 0.1)
    most = 1.05 * max(1.0, *(cost for cost, _ in (*points, current)))
    series = [
        Series("full network", "ink", [(0, 100 * full), (most, 100 * full)]),
        Series("points", "blue", sorted(points)),
        Series("in force", "purple", [current], line=False),
    ]
    y_range = min(accuracies) - margin, max(accuracies) + margin
    return draw_lines(series, x_label="relative cost", y_label="accuracy", x_range=(0, most), y_range=y_range)


def _draw_exits(scheduler: Scheduler, total: Bin) -> str:
    samples = max(total.exits.total(), 1)
    exits = sorted({*scheduler.model.point.active, *total.exits, scheduler.model.backbone.num_exits - 1})
    bars = [
        (f"exit {exit}", total.exits[exit] / samples, f"{100 * total.exits[exit] / samples:.1f} %") for exit in exits
    ]
    return draw_bars(bars, label="Share of samples by exit")


def _draw_load(bins: list[Bin]) -> str:
    answered = [part.statuses[200] / BIN_S for part in bins]
    others = [(part.statuses.total() - part.statuses[200]) / BIN_S for part in bins]
    series = [Series("answered", "blue", _over_time(answered)), Series("refused", "orange", _over_time(others))]
    return _draw_minutes(series, "requests per second")


def _draw_latency(bins: list[Bin]) -> str:
    series = [
        Series(name, colour, _over_time([1000 * part.quantile_s(share) for part in bins]))
        for (name, share), colour in zip(QUANTILES.items(), SERIES, strict=False)
    ]
    return _draw_minutes(series, "milliseconds")


def _over_time(values: list[float]) -> list[tuple[float, float]]:
    """Return values of bins with their times in minutes, the last at 0."""
    return [((place - len(values) + 1) * BIN_S / 60, value) for place, value in enumerate(values)]


def _draw_minutes(series: list[Series], label: str) -> str:
    most = max((y for entry in series for _, y in entry.points if y == y), default=0.0)  # without NaN
    y_range = (0.0, 1.1 * most if most > 0 else 1.0)
    return draw_lines(series, x_label="minutes", y_label=label, x_range=(-MINUTES, 0), y_range=y_range)
